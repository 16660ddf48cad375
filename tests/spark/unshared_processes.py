"""A query whose Python processes each serve one call: `spark.python.worker.reuse=false`.

`python -m tests.spark.unshared_processes <folder>` copies numbers in several micro-batches, and
writes what the log held when the query had ended to the folder's file `seen.json`.
"""

import json
import sys
from pathlib import Path

from tests.spark.session import small_session
from txlog.client.admin import Admin
from txlog.client.producer.producer import Producer
from txlog.engine.connection import connect

COUNT, BATCH = 12, 4


def main(folder: Path) -> None:
    """Run the query to the end of its input."""
    spark = small_session("unshared", {"spark.python.worker.reuse": "false"})
    root = str(folder / "log")
    for topic in ("numbers", "copies"):
        Admin(root, create=True).create_topic(topic, 1)
    with Producer(root) as producer:
        for number in range(COUNT):
            producer.send("numbers", b"%d" % number)
    given = {"subscribe": "numbers", "group.id": "g", "startingOffsets": "earliest"}
    source = spark.readStream.format("txlog").options(**given, maxOffsetsPerTrigger=BATCH)
    sink = source.load(root).select("value").writeStream.format("txlog").option("topic", "copies")
    sink = sink.option("checkpointLocation", str(folder / "checkpoint"))
    query = sink.trigger(availableNow=True).option("root", root).start()
    query.awaitTermination()
    connection = connect(root)
    group = connection.offsets.group("g")
    seen = {
        "batches": len([p for p in query.recentProgress if p["numInputRows"]]),
        "open": sum(len(list(c.catch_up().open_transactions())) for c in connection.coordinators()),
        "pending": len(group.pending),
        "positions": [at.offset for at in group.committed.values()],
    }
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
