"""An executor: it runs tasks that the driver has pickled, and pickles what they return or raise."""

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from tests.processes.other_disk import see_another_disk
from txlog.errors import TxlogError

Task = tuple[Any, str, Any, dict[str, str]]
"""A writer or a reader, its method, the method's argument, and the properties that Spark sets."""


def main(home: Path, content: Path | None, tasks: Path, answers: Path) -> None:
    """Run the tasks where another disk is at `home`. The last answer is what is on it then."""
    see_another_disk(home, content)
    found = [run(task) for task in pickle.loads(tasks.read_bytes())]
    here = Path("~").expanduser()
    found.append(sorted(str(path.relative_to(here)) for path in here.rglob("*")))
    answers.write_bytes(pickle.dumps(found))


def run(task: Task) -> object:
    """What one task returns, or its error."""
    instance, method, argument, properties = task
    context = TaskContext()
    context._localProperties = properties
    TaskContext._setTaskContext(context)
    try:
        if method == "read":
            return [batch.num_rows for batch in instance.read(argument)]
        return instance.write(iter([pa.RecordBatch.from_pydict(argument)]))
    except TxlogError as error:
        return error
