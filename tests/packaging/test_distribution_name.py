"""One distribution name everywhere, and what happens if another project owns our package's name."""

import configparser
import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

import txlog
from tests.processes.command_line import run
from tests.source_tree import ROOT
from txlog.cli.doctor.check import Check, Status
from txlog.cli.doctor.check_packages import claimed_packages, distribution_checks
from txlog.distribution import DISTRIBUTION, install_command
from txlog.storage.s3 import s3_client

OTHERS_NAME = re.compile(
    r"""pip\ install\ (?:-[\w-]+\ )*["']?txlog(?![\w-])  # for pip
      | (?:version|requires|distribution|metadata)\(["']txlog["']\)  # for importlib.metadata
      | name\s?=\s?"?txlog"?\s*$""",
    re.VERBOSE | re.MULTILINE,
)
"""Matches text that would install the project that has our package's name on the package index."""

WARNING = "**`pip install txlog` installs an unrelated project**"


def tracked_texts() -> dict[str, str]:
    """The text of every file of the project, by its path."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8", errors="replace")
        for path in paths
        if path != Path(__file__)
    }


def add_distribution(folder: Path, name: str, version: str, **files: str) -> None:
    """The files that pip leaves for an installed distribution, where importlib.metadata finds
    them."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (info / file.replace("_txt", ".txt")).write_text(text)


def test_distribution_name_matches_setup_cfg_and_differs_from_package_name() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert config["metadata"]["name"] == DISTRIBUTION != "txlog"
    assert config["metadata"]["version"] == txlog.__version__


def test_no_file_refers_to_the_distribution_of_the_other_project() -> None:
    found = {
        path: OTHERS_NAME.findall(text.replace(WARNING, ""))
        for path, text in tracked_texts().items()
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "comes with the extra `cli`: `pip install 'txlog[cli]'`.",
        "pip install txlog",
        'importlib.metadata.version("txlog")',
        "importlib.metadata.requires('txlog')",
        "[metadata]\nname = txlog\nversion = 1",
    ],
)
def test_texts_that_refer_to_the_other_project_are_detected(text: str) -> None:
    assert OTHERS_NAME.search(text)


def test_errors_name_the_command_that_installs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(s3_client.fsspec, "get_filesystem_class", missing)
    with pytest.raises(txlog.TxlogError, match="pip install 'txlog-spark") as caught:
        s3_client._file_system_class()
    assert install_command("s3") in str(caught.value)


def test_this_environment_has_one_distribution_for_each_package() -> None:
    claims = claimed_packages(importlib.metadata.distributions())
    assert {package: set(names) for package, names in claims.items()} == {
        package: {DISTRIBUTION} for package in ("txlog", "spark_plugin", "pyspark_txlog")
    }


@pytest.mark.parametrize(
    "files",
    [{"top_level_txt": "txlog\n"}, {"RECORD": "txlog/__init__.py,,\ntxlog/other.py,,\n"}],
    ids=["top_level.txt", "RECORD"],
)
def test_doctor_fails_if_another_distribution_claims_the_package(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_distribution(tmp_path, "txlog", "3.2610.1", **files)
    monkeypatch.syspath_prepend(tmp_path)
    done = run("doctor", "-o", "json")
    (shared,) = (check for check in done.json["checks"] if check["check"] == "package txlog")
    assert (shared["status"], done.code) == ("fail", 1)
    assert f"txlog 3.2610.1 and {DISTRIBUTION}" in shared["found"]
    assert shared["fix"].startswith(f"pip uninstall --yes txlog {DISTRIBUTION}")


def test_respelled_distribution_name_and_empty_dist_info_are_not_foreign(
    tmp_path: Path,
) -> None:
    add_distribution(tmp_path, "TxLog_Spark", "0.0.9", top_level_txt="txlog\n")
    (tmp_path / "gone-1.0.dist-info").mkdir()
    claims = claimed_packages(importlib.metadata.distributions(path=[str(tmp_path)]))
    assert claims == {"txlog": {DISTRIBUTION: "0.0.9"}}


@pytest.mark.parametrize("public", [[], ["TxLog"]])
def test_check_of_an_overwritten_package_fails(
    public: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(txlog, "__all__", public)
    checks: list[Check] = list(distribution_checks())
    assert [(c.name, c.status) for c in checks] == [(DISTRIBUTION, Status.FAIL)]
    assert "--force-reinstall" in checks[0].fix
