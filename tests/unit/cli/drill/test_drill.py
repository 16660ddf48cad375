"""`txlog drill` without Spark: its plan, its points, its report, and what it refuses."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spark_plugin.checkpoints.query_progress import NewestBatch
from spark_plugin.drill.points import POINTS, DrillPoint, DrillPoints, DrillStep
from tests.processes.command_line import run
from txlog.cli.drill.drill_checks import DrillCheck
from txlog.cli.drill.drill_report import (
    DrillResult,
    document,
    html_report,
    repeat_command,
    sections,
)
from txlog.cli.drill.drill_rounds import AT_RANDOM, Kill, plan_rounds
from txlog.cli.output.output import Grid
from txlog.storage.store import Created, Exists
from txlog.testing.clock import manual_runtime

# The plan.


def test_plan_is_reproducible_from_its_seed_and_covers_every_point() -> None:
    assert plan_rounds(12, 7) == plan_rounds(12, 7)
    planned = [planned.point for planned in plan_rounds(12, 7)]
    assert [point for point in planned if point != AT_RANDOM] == list(POINTS)
    assert planned.count(AT_RANDOM) == 3
    delays = {r.delay_ms for seed in range(20) for r in plan_rounds(4, seed)} - {0.0}
    assert len(delays) == 20


def test_short_plan_starts_at_any_point_and_ends_with_a_random_kill() -> None:
    plans = [[r.point for r in plan_rounds(3, seed)] for seed in range(200)]
    assert all(plan[-1] == AT_RANDOM for plan in plans)
    assert {point for plan in plans for point in plan} == {*POINTS, AT_RANDOM}
    assert plan_rounds(1, 0)[0].point in POINTS


# The points.


def test_drill_point_counts_only_matching_objects(tmp_path: Path) -> None:
    points = DrillPoints(tmp_path)
    points.set("second", DrillPoint(DrillStep.AFTER, "topics/", ('"marker_written"',), number=2))
    points.release("second")  # Otherwise a process would wait forever.
    calls: list[str] = []

    def create(path: str, data: bytes) -> None:
        def done() -> Created:
            calls.append(path)
            return Created()

        points.create(path, data, done)

    create("topics/a/1", b'{"type":"marker_written"}')
    create("transactions/0", b'{"type":"marker_written"}')
    assert len(list(tmp_path.glob("second.created *"))) == 1
    create("topics/b/1", b'{"type":"marker_written"}')
    assert len(list(tmp_path.glob("second.created *"))) == 2
    assert calls == ["topics/a/1", "transactions/0", "topics/b/1"]
    points.clear()
    assert list(tmp_path.glob("*.*")) == []


def test_drill_point_ignores_an_object_created_by_another_process(tmp_path: Path) -> None:
    """This process did not get the journal's slot, so the step to stop at has not happened yet."""
    points = DrillPoints(tmp_path, manual_runtime())
    points.set("first", DrillPoint(DrillStep.AFTER, "topics/"))
    points.create("topics/a/1", b"{}", lambda: Exists(b""))
    assert not points.is_reached("first")
    points.release("first")  # Otherwise a process would wait forever.
    points.create("topics/a/2", b"{}", Created)
    assert [path.name for path in tmp_path.glob("first.created *")] == ["first.created 1"]


# The report.

FOUND = NewestBatch(3, True, False, True)
RESULT = DrillResult(
    "/data",
    "<script>alert(1)</script>",
    7,
    61_000.0,
    (
        Kill(1, "after pend", True, True, 9, FOUND, "replayed: was in the log", 12_345.6),
        Kill(2, AT_RANDOM, True, False, 2, NewestBatch(4, False, False, False), "went on", None),
    ),
    (DrillCheck("input = output", True, "500 in, 500 out"),),
    "txlog --root /data drill --kills 2 --seed 7",
)


class _Reader(HTMLParser):
    """Collects every tag, attribute and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_report_is_self_contained_and_escapes_text() -> None:
    reader = _Reader()
    reader.feed(html_report(RESULT))
    assert reader.references == []
    assert "script" not in reader.tags
    assert "<script>alert(1)</script>" in reader.texts
    text = " ".join(reader.texts)
    for wanted in ("12.3 s", "after pend", "replayed: was in the log", "500 in, 500 out"):
        assert wanted in text
    assert "txlog --root /data drill --kills 2 --seed 7" in text
    assert "Nothing was lost" in text


def test_report_without_an_output_check_does_not_claim_that_nothing_was_lost() -> None:
    text = html_report(replace(RESULT, checks=(DrillCheck("invariants", True, "all agree"),)))
    assert "lost" not in text
    assert "the log is whole" in text


def test_repeat_command_includes_the_options_and_job_arguments() -> None:
    options = {"--job": Path("my job.py"), "--checkpoint": "c", "--kills": 3, "--wait": None}
    assert repeat_command("s3://b/log", options, ["--root", "x y"]) == (
        "txlog --root s3://b/log drill --job 'my job.py' --checkpoint c --kills 3 -- --root 'x y'"
    )
    assert repeat_command(None, {"--seed": 7}, []) == "txlog drill --seed 7"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--password", "hush", "--root", "r"], "--password '***' --root r"),
        (["--API-Token=hush", "x"], "'--API-Token=***' x"),
        (["--password", "-hush"], "--password '***'"),
        (["--conf", "spark.hadoop.fs.s3a.secret.key=hush"], "fs.s3a.secret.key=***'"),
        (["jdbc:x://h/db?user=me&password=hush&ssl=on"], "user=***&password=***&ssl=***'"),
        (["--options", '{"secret": "hush"}', "--topic", "t"], "--options '***' --topic t"),
        (['{"secret": "hush"}'], '\'{"secret": "***"}\''),
        (["https://me:hush@host/path"], "'https://***@host/path'"),
        (["--pw", "hush", "-u", "me:hush", "-phush"], "--pw '***' -u '***' '-p***'"),
        (["--unknown", "hush", "--rows", "3"], "--unknown '***' --rows 3"),
        (["--use-key", "--root", "r"], "--use-key --root r"),
        (["--key=hush-key", "r"], "'--key=***' r"),
        (["keys.py", "--root", "s3://b/log"], "keys.py --root s3://b/log"),
    ],
)
def test_repeat_command_redacts_secrets_in_job_arguments(arguments: list[str], shown: str) -> None:
    again = repeat_command(None, {}, arguments)
    assert shown in again
    assert "hush" not in again


def test_drill_without_kills_or_checks_is_not_well() -> None:
    kills = tuple(replace(kill, processes=0) for kill in RESULT.kills)
    assert RESULT.is_well
    assert not replace(RESULT, kills=kills).is_well
    assert not replace(RESULT, kills=()).is_well
    assert not replace(RESULT, checks=()).is_well


def test_drill_that_reached_no_point_has_a_warning_in_every_output() -> None:
    first, at_random = RESULT.kills
    missed = replace(RESULT, kills=(replace(first, is_reached=False), at_random))
    assert missed.is_well
    assert "No named point was reached" in html_report(missed)
    assert "No named point was reached" in str(document(missed)["warning"])
    assert Grid(("WARNING",), [(missed.warning,)]) in list(sections(missed))
    assert (RESULT.warning, document(RESULT)["warning"]) == ("", None)


def test_failure_is_reported_in_json_and_html() -> None:
    failed = DrillResult(
        "/data", "job", 7, 1.0, (), (DrillCheck("open transactions", False, "one"),), "", "it died"
    )
    assert document(failed)["ok"] is False
    page = html_report(failed)
    assert "The drill failed." in page
    assert "it died" in page
    assert json.loads(json.dumps(document(RESULT)))["replays"] == 1


# What the command refuses.


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--job", "nowhere.py", "--checkpoint", "c"], 2, "there is no job nowhere.py"),
        (["--job", __file__], 2, "--job needs --checkpoint"),
        (["--checkpoint", "c"], 2, "give --job FILE"),
        (["--kills", "0"], 2, "--kills"),
        (["--job", __file__, "--checkpoint", "c"], 2, "no log was named"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], code: int, why: str) -> None:
    done = run("drill", *arguments)
    assert (done.code, done.out) == (code, "")
    assert why in done.err
