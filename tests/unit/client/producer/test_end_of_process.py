"""A process may still write at its end: at exit, or in a thread that outlives the main thread."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from txlog import Admin, Consumer

_COMMITS = """
import atexit, sys, threading
from concurrent.futures import ThreadPoolExecutor
from txlog import Producer

producer = Producer(sys.argv[1], transactional_id="a")
producer.init_transactions()

def commit():
    try:
        while True:
            ThreadPoolExecutor(1).submit(int).result()
    except RuntimeError:
        pass  # Pools take no more work from here on.
    for number in range(2):
        with producer.transaction():
            for topic in ("t", "u"):
                producer.send(topic, b"%d" % number)
"""


@pytest.mark.parametrize(
    "begin", ["threading.Thread(target=commit).start()", "atexit.register(commit)"]
)
def test_transactions_commit_after_the_main_thread_has_ended(tmp_path: Path, begin: str) -> None:
    root = str(tmp_path / "log")
    for topic in ("t", "u"):
        Admin(root, create=True).create_topic(topic, 1)
    done = subprocess.run(
        [sys.executable, "-c", _COMMITS + begin, root], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stderr == ""
    with Consumer(
        "t", "u", root=root, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        values = sorted((record.topic, record.value) for record in consumer.read_to_end())
    assert values == [("t", b"0"), ("t", b"1"), ("u", b"0"), ("u", b"1")]
    assert [listed.state for listed in Admin(root).list_transactions()] == ["CompleteCommit"]
