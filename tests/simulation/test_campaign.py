"""A run of many seeds that is ended early, or whose checkers fail, still reports its results."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.micro_batch_scenarios import OF_MICRO_BATCHES
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.slow_queries import OF_SLOW_QUERIES
from tests.simulator import run
from tests.simulator.campaign import STOPPED, main
from tests.simulator.scenarios import SCENARIOS as CORE
from tests.source_tree import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_campaign_stopped_early_prints_its_results(ending: signal.Signals, workers: str) -> None:
    options = ["--minutes", "5", "--workers", workers, "--scenario", "halves"]
    command = [sys.executable, "-m", "tests.simulation", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as campaign:
        assert campaign.stdout is not None
        first = campaign.stdout.readline()
        campaign.send_signal(ending)
        rest = campaign.stdout.read()
    assert "0 failed" in first
    assert "Stopped. So far:" in rest
    assert "faults: " in rest
    assert campaign.returncode == STOPPED


def test_failing_checker_is_a_finding_with_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def anomalies(history: object) -> list[object]:
        raise LookupError("a checker that is wrong")

    monkeypatch.setattr(run, "anomalies", anomalies)
    found = run.checked(SCENARIOS["halves"], 3)
    assert found.seed == 3
    assert [finding.kind for finding in found.findings] == ["failure"]
    assert "a checker that is wrong" in str(found)


def test_trace_is_written_although_the_checker_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def anomalies(history: object) -> list[object]:
        raise LookupError("a checker that is wrong")

    monkeypatch.setattr(run, "anomalies", anomalies)
    options = ["--scenario", "halves", "--seed", "3", "--trace", str(tmp_path)]
    assert main(options, SCENARIOS, "sim") == 1
    assert "a checker that is wrong" in capsys.readouterr().out
    assert '"what":"send"' in (tmp_path / "halves.history.jsonl").read_text()
    assert "put_object" in (tmp_path / "halves.requests.jsonl").read_text()


def test_scenario_names_are_unique() -> None:
    """Mappings are merged: the later one would win silently."""
    own = ("aging", "numbers", "queries", "large-queries")
    names = [*CORE, *OF_MICRO_BATCHES, *OF_SLOW_QUERIES, *own]
    assert len(names) == len(set(names))
    assert SCENARIOS.keys() == set(names)
