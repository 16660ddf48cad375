"""Random histories, from one seed: steps that name producers and groups by their numbers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, TypeAlias

Where: TypeAlias = tuple[str, int]

IDS, GROUPS = 2, 2
PARTITIONS: tuple[Where, ...] = (("a", 0), ("a", 1), ("b", 0))


@dataclass(frozen=True)
class Step:
    """One step: the name of a method of the player, and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


def history(seed: int, length: int) -> list[Step]:
    """The steps of a seed. Producers are numbered as they register; older instances go on."""
    draw = random.Random(seed)
    steps = [Step("register", (0,)), Step("register", (1,))]
    producers, members = 2, 0
    has_members = draw.random() < 0.15
    for _ in range(length):
        # Mostly the newest ones; sometimes one that was replaced.
        who = producers - 1 - min(int(draw.expovariate(0.7)), producers - 1)
        where, group = draw.choice(PARTITIONS), draw.randrange(GROUPS)
        count, index = draw.randint(1, 3), draw.randint(0, 6)
        kind = draw.choices(
            [*_WEIGHTS, "join", "member_commit", "heartbeat", "leave"],
            [*_WEIGHTS.values(), *([2, 3, 2, 1] if has_members else [0] * 4)],
        )[0]
        match kind:
            case "register":
                steps.append(Step(kind, (draw.choice((0, 1, None)),)))
                producers += 1
            case "renew":
                steps.append(Step(kind, (who,)))
            case "produce":
                steps.append(Step(kind, (who, where, count)))
            case "add":
                steps.append(Step(kind, (who, where)))
            case "append":
                order = draw.choice(("next", "next", "repeat", "gap"))
                steps.append(Step(kind, (who, where, count, order)))
            case "plain":
                steps.append(Step(kind, (where, count)))
            case "end":
                steps.append(Step(kind, (who, draw.random() < 0.7)))
            case "send_offsets":
                steps.append(Step(kind, (who, group, where, index)))
            case "pend":
                steps.append(Step(kind, (who, group, where, index)))
            case "commit" | "member_commit":
                member = (draw.randrange(members + 1),) if kind == "member_commit" else ()
                steps.append(Step(kind, (group, where, index, *member)))
            case "join":
                steps.append(Step(kind, (group,)))
                members += 1
            case "heartbeat" | "leave":
                steps.append(Step(kind, (draw.randrange(members + 1),)))
            case "committed":
                steps.append(Step(kind, (group,)))
            case "read":
                steps.append(Step(kind, (where, draw.random() < 0.7)))
            case "offsets":
                steps.append(Step(kind, (where, draw.choice(("earliest", "latest", "time")))))
            case "delete_records":
                steps.append(Step(kind, (where, index)))
    ends = [Step("end", (number, False)) for number in range(producers)]
    reads = [Step("read", (where, True)) for where in PARTITIONS]
    return [*steps, *ends, *reads, *(Step("committed", (g,)) for g in range(GROUPS))]


_WEIGHTS = {
    "register": 3,
    "renew": 2,
    "produce": 14,
    "add": 2,
    "append": 4,
    "plain": 5,
    "end": 10,
    "send_offsets": 6,
    "pend": 1,
    "commit": 5,
    "committed": 4,
    "read": 6,
    "offsets": 3,
    "delete_records": 2,
}
