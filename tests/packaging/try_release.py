"""Tests the files of a release: each file of a folder is installed in an empty environment.

`python -m tests.packaging.try_release dist` needs the package index. Each environment gets one
distribution with its extra `cli` and nothing else. Spark is left to the tests, which install the
wheel, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TRANSACTION = """
import sys
from txlog import Admin, Consumer, Producer
root = sys.argv[1]
Admin(root, create=True).create_topic("orders", 2)
with Producer(root, transactional_id="release") as producer:
    producer.init_transactions()
    with producer.transaction():
        producer.send("orders", b"12", key=b"bob")
reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
with Consumer("orders", root=root, **reading) as consumer:
    values = [record.value for records in consumer.poll().values() for record in records]
assert values == [b"12"], values
"""


def main(folder: Path) -> None:
    """Test the source distribution and the wheel. Raises CalledProcessError at the first
    failure."""
    for distribution in sorted((*folder.glob("*.whl"), *folder.glob("*.tar.gz"))):
        print(f"{distribution.name}: in an empty environment", flush=True)
        with tempfile.TemporaryDirectory() as place:
            _try(distribution.resolve(), Path(place))
    print("Each commits a transaction, reads it back, and verifies its log.")


def _try(distribution: Path, place: Path) -> None:
    binaries = place / "venv" / "bin"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: object) -> None:
        subprocess.run([*map(str, command)], cwd=place, env=variables, check=True)

    run(sys.executable, "-m", "venv", place / "venv")
    run(binaries / "python", "-m", "pip", "install", "--quiet", f"{distribution}[cli]")
    run(binaries / "txlog", "--version")
    run(binaries / "python", "-c", TRANSACTION, place / "log")
    run(binaries / "txlog", "verify", place / "log")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
