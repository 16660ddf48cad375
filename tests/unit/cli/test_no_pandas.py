"""No command imports pandas, as pyarrow's own conversions do where it is installed: that takes
0.3 to 0.5 s of the start, and 45 MB.

Each command runs in a fork of one process that has imported the command line.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.processes.command_line import PROCESS_TIMEOUT_S, environment
from tests.source_tree import ROOT
from tests.unit.cli.command_cases import CASES, ENVIRONMENT, places_of, words_of

COMMANDS = ("consume", "produce", "sql", "export", "topic list", "group lag")
"""Those that convert many values, and two of the others."""

_FORKS = """
import json, os, sys, traceback
import txlog.cli.main, txlog.cli.start

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            frames = [f"{f.filename}:{f.lineno}" for f in traceback.extract_stack()]
            own = [frame for frame in frames if "/txlog/" in frame]
            answers.write(own[-1].rpartition("/txlog/")[2].encode())

sys.meta_path.insert(0, Watch())
found = {}
for case in json.load(open(sys.argv[1])):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        answers = os.fdopen(write, "wb", buffering=0)
        sys.argv = ["txlog", *case]
        try:
            txlog.cli.start.main()
        except SystemExit as ended:
            os._exit(ended.code or 0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found[" ".join(case[2:])] = said, code
json.dump(found, open(sys.argv[2], "w"))
"""


def test_no_command_imports_pandas(logs_of_cases: Path, tmp_path: Path) -> None:
    assert find_spec("pandas") is not None, "else this proves nothing"
    cases = []
    for number, name in enumerate(COMMANDS):
        (folder := tmp_path / str(number)).mkdir()
        places = places_of(logs_of_cases, folder)
        cases.append(["--root", str(places["root"]), *words_of(name, CASES[name][0], places)])
    asked, told = tmp_path / "cases.json", tmp_path / "found.json"
    asked.write_text(json.dumps(cases))
    subprocess.run(
        [sys.executable, "-c", _FORKS, str(asked), str(told)],
        env=environment(**ENVIRONMENT), cwd=ROOT, check=True, capture_output=True,
        timeout=PROCESS_TIMEOUT_S,
    )  # fmt: skip
    found = json.loads(told.read_text())
    assert len(found) == len(COMMANDS)
    assert {words: place for words, (place, _) in found.items() if place} == {}
    assert {words: code for words, (_, code) in found.items() if code} == {}
