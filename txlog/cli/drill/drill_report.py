"""A drill's result: as tables, as JSON, and as one self-contained HTML file."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from shlex import join

from txlog.cli.drill.drill_checks import INPUT_OUTPUT, DrillCheck
from txlog.cli.drill.drill_rounds import AT_RANDOM, Kill
from txlog.cli.output.output import Facts, Grid, Section, cell
from txlog.redaction import redact_arguments, redact_url

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: 600; } td.n { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: #17692b; } .fail { color: #a31515; font-weight: 600; }
"""


@dataclass(frozen=True, slots=True)
class DrillResult:
    """Everything that a drill observed."""

    root: str
    job: str
    seed: int
    duration_ms: float
    kills: tuple[Kill, ...]
    checks: tuple[DrillCheck, ...]
    again: str = ""
    """The command that plans the same kills for the same job."""
    failure: str = ""
    """What ended the drill early: the job, the log or its store; "" if nothing did."""
    orphans_killed: int = 0

    @property
    def is_well(self) -> bool:
        """The job was killed and recovered, and every check was proven."""
        # Kills that hit no process prove nothing, whatever the checks find.
        is_proven = bool(self.checks) and all(check.is_well for check in self.checks)
        return is_proven and not self.failure and any(kill.processes for kill in self.kills)

    @property
    def warning(self) -> str:
        """Why a good result proves little; "" if it proves recovery."""
        named = [kill for kill in self.kills if kill.point != AT_RANDOM]
        if not named or any(kill.is_reached for kill in named):
            return ""
        return (
            "No named point was reached: the job was killed elsewhere. Give it records to "
            "read meanwhile, or more time by --wait."
        )

    @property
    def verdict(self) -> str:
        """The verdict in a sentence. The output of a user's own job cannot be checked."""
        if not self.is_well:
            return "The drill failed."
        if any(check.name == INPUT_OUTPUT for check in self.checks):
            return "Nothing was lost, duplicated or torn."
        return "The job recovered, and the log is whole."

    @property
    def replays(self) -> int:
        """The number of micro-batches that were run again."""
        return sum(kill.found.is_in_flight for kill in self.kills)

    @property
    def recovery_max_ms(self) -> float | None:
        """The longest recovery."""
        return max((k.recovery_ms for k in self.kills if k.recovery_ms is not None), default=None)


def repeat_command(
    root: str | None, options: Mapping[str, object], arguments: Sequence[str]
) -> str:
    """The command line that repeats a drill; an option that was not given is None.

    Of the job's arguments, the values of unknown options are hidden, because reports are passed on.
    """
    words = ["txlog", *(["--root", redact_url(root)] if root else []), "drill"]
    for option, value in options.items():
        words += [] if value is None else [option, redact_url(str(value))]
    return join([*words, *(["--", *redact_arguments(arguments)] if arguments else [])])


def document(result: DrillResult) -> dict[str, object]:
    """As JSON."""
    return {
        "ok": result.is_well,
        "root": result.root,
        "job": result.job,
        "seed": result.seed,
        "duration_ms": round(result.duration_ms),
        "replays": result.replays,
        "again": result.again,
        "failure": result.failure or None,
        "warning": result.warning or None,
        "orphans_killed": result.orphans_killed,
        "kills": [asdict(kill) for kill in result.kills],
        "checks": [
            {"check": check.name, "status": _status(check), "found": check.found}
            for check in result.checks
        ],
    }


def sections(result: DrillResult) -> Iterator[Section]:
    """As tables."""
    yield _facts(result)
    yield _kills(result)
    if result.checks:
        yield _checks(result)
    if result.warning:
        yield Grid(("WARNING",), [(result.warning,)])
    if result.failure:
        yield Grid(("WHAT ENDED THE DRILL",), [(line,) for line in result.failure.splitlines()])


def _facts(result: DrillResult) -> Facts:
    longest = result.recovery_max_ms
    return Facts(
        (
            ("Log", result.root),
            ("Job", result.job),
            ("Seed", result.seed),
            ("Kills", len(result.kills)),
            ("Replays", result.replays),
            ("LongestRecovery", None if longest is None else _seconds(longest)),
            ("Duration", _seconds(result.duration_ms)),
            ("Result", "ok" if result.is_well else "fail"),
        )
    )


def _kills(result: DrillResult) -> Grid:
    headers = ("KILL", "POINT", "REACHED", "BATCH", "FOUND", "OUTCOME", "RECOVERY", "PROCESSES")
    return Grid(headers, [_kill_row(kill) for kill in result.kills])


def _kill_row(kill: Kill) -> tuple[object, ...]:
    state = "between two batches"
    if kill.found.is_in_flight:
        state = "in the log" if kill.found.is_in_log else "in flight"
    return (
        kill.number,
        kill.point,
        kill.is_reached,
        kill.found.batch,
        state,
        kill.outcome,
        None if kill.recovery_ms is None else _seconds(kill.recovery_ms),
        kill.processes,
    )


def _checks(result: DrillResult) -> Grid:
    rows = [(check.name, _status(check), check.found) for check in result.checks]
    return Grid(("CHECK", "STATUS", "FOUND"), rows)


def _status(check: DrillCheck) -> str:
    return "ok" if check.is_well else "fail"


def _matrix(result: DrillResult) -> Grid:
    """Kill point x outcome."""
    counts = Counter((kill.point, kill.outcome) for kill in result.kills)
    outcomes = sorted({outcome for _, outcome in counts})
    points = list(dict.fromkeys(kill.point for kill in result.kills))
    rows = [(point, *(counts[point, outcome] or "" for outcome in outcomes)) for point in points]
    return Grid(("KILL POINT", *(outcome.upper() for outcome in outcomes)), rows)


def _seconds(duration_ms: float) -> str:
    return f"{duration_ms / 1000:.1f} s"


# HTML.


def html_report(result: DrillResult) -> str:
    """One self-contained file: no script, no link, no external resource."""
    verdict = result.verdict
    status = "ok" if result.is_well else "fail"
    parts = [
        f'<h1>txlog drill: <span class="{status}">{verdict}</span></h1>',
        *([f'<p class="fail">{html.escape(result.warning)}</p>'] if result.warning else []),
        _html_facts(_facts(result)),
        "<h2>Kill point and outcome</h2>",
        _html_grid(_matrix(result)),
        "<h2>Every kill</h2>",
        _html_grid(_kills(result)),
        "<h2>What was proven</h2>",
        _html_grid(_checks(result)),
    ]
    if result.failure:
        parts += ["<h2>What ended the drill</h2>", f"<pre>{html.escape(result.failure)}</pre>"]
    parts.append(f"<p>The same kills again: <code>{html.escape(result.again)}</code></p>")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>txlog drill</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html_facts(facts: Facts) -> str:
    rows = "".join(f"<tr><th>{html.escape(n)}</th>{_td(value)}</tr>" for n, value in facts.pairs)
    return f"<table>{rows}</table>"


def _html_grid(grid: Grid) -> str:
    head = "".join(f"<th>{html.escape(header.capitalize())}</th>" for header in grid.headers)
    rows: Sequence[str] = [f"<tr>{''.join(map(_td, row))}</tr>" for row in grid.rows]
    return f"<table><tr>{head}</tr>\n{''.join(rows)}</table>"


def _td(value: object) -> str:
    kind = "n" if type(value) is int else value if value in ("ok", "fail") else ""
    return f'<td class="{kind}">{html.escape(cell(value))}</td>'
