"""The closing table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from rich.box import SIMPLE
from rich.table import Table

from examples.demo.drill import DemoDrill
from examples.demo.transactions import PRODUCER
from examples.demo.verify import GROUPS, SOURCE, Proof

TOPICS = (SOURCE, "delays", "cancellations", "hourly")
NOTHING = ""


def closing_table(proof: Proof, drill: DemoDrill, seconds: float) -> Table:
    """One table: a column for each topic, with the figures of its writer."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in TOPICS:
        table.add_column(name, justify="right")
    table.add_column("all", justify="right", style="bold")
    for title, figures in _record_rows(proof).items():
        _add(table, title, [figures[name] for name in TOPICS])
    table.add_section()
    for title, of_writer in _writer_rows(proof, drill).items():
        producer, delays, hourly = of_writer
        _add(table, title, [producer, delays, None, hourly])
    table.add_section()
    table.add_row("violated invariants", *[NOTHING] * 4, str(len(proof.findings)))
    table.add_row("seconds", *[NOTHING] * 4, f"{seconds:.1f}")
    return table


def _record_rows(proof: Proof) -> dict[str, dict[str, int]]:
    topics = proof.topics
    return {
        "records in": {name: topics[name].expected for name in TOPICS},
        "records out": {name: topics[name].found for name in TOPICS},
        "lost": {name: topics[name].lost for name in TOPICS},
        "duplicated": {name: topics[name].duplicated for name in TOPICS},
        "wrong": {name: topics[name].wrong for name in TOPICS},
    }


def _writer_rows(proof: Proof, drill: DemoDrill) -> dict[str, list[int | None]]:
    """For the producer, the stateless job (delays and cancellations), and the stateful job."""
    ended = [proof.endings[name] for name in (PRODUCER, *GROUPS)]
    return {
        "transactions committed": [len(e.committed) for e in ended],
        "transactions aborted": [len(e.aborted) for e in ended],
        "transactions replayed": [None, *(drill.replays_of(name) for name in GROUPS)],
        "transactions torn": [proof.torn[SOURCE], proof.torn["delays"], None],
        "offsets not consumed": [None, *(proof.groups[name].offsets_behind for name in GROUPS)],
        "kills survived": [None, *(len(drill.jobs[name].kills) for name in GROUPS)],
    }


def _add(table: Table, title: str, figures: list[int | None]) -> None:
    cells = [NOTHING if figure is None else f"{figure:,}" for figure in figures]
    total = sum(figure or 0 for figure in figures)
    table.add_row(title, *cells, f"{total:,}")


def as_json(
    proof: Proof, drill: DemoDrill, phases_s: Mapping[str, float], seed: int
) -> dict[str, object]:
    """The contents of the table, and each kill."""
    ended = proof.endings
    return {
        "seed": seed,
        "seconds": {name: round(value, 1) for name, value in phases_s.items()},
        "cpu_seconds": {name: round(job.cpu_s, 1) for name, job in drill.jobs.items()},
        "topics": {name: asdict(found) for name, found in proof.topics.items()},
        "writers": {
            title: dict(zip(("producer", *GROUPS), figures, strict=True))
            for title, figures in _writer_rows(proof, drill).items()
        },
        "records_aborted": proof.records_aborted,
        "watermark_only_batches": ended["hourly"].watermark_only,
        "hours_open": proof.hours_open,
        "orphans_killed": sum(job.orphans_killed for job in drill.jobs.values()),
        "kills": [
            {"job": name, **asdict(planned), **asdict(kill)}
            for name, job in drill.jobs.items()
            for planned, kill in zip(job.rounds, job.kills, strict=True)
        ],
        "problems": proof.problems(),
    }
