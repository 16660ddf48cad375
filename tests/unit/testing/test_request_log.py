"""The longest chain of requests that waited for each other is computed from their times."""

import pytest

from txlog.testing.request_log import Request, chain, described


def requests(*times: tuple[float, float]) -> list[Request]:
    return [Request("get", f"{begun}-{ended}", begun, ended) for begun, ended in times]


@pytest.mark.parametrize(
    ("times", "waited"),
    [
        ([], []),
        ([(0, 30)], ["0-30"]),
        ([(0, 30), (30, 60), (61, 90)], ["0-30", "30-60", "61-90"]),
        ([(0, 30), (1, 40), (41, 70)], ["1-40", "41-70"]),
        ([(0, 30), (0, 31), (0, 29)], ["0-31"]),
        ([(0, 90), (0, 30), (30, 60)], ["0-90"]),
        ([(30, 60), (0, 30)], ["0-30", "30-60"]),
    ],
)
def test_chain_links_requests_that_began_after_the_previous_ended(
    times: list[tuple[float, float]], waited: list[str]
) -> None:
    assert [request.path for request in chain(requests(*times))] == waited


def test_description_is_in_round_trips_and_stars_requests_of_the_chain() -> None:
    assert list(described(requests((100, 130), (100, 120), (130, 160)), 30.0)) == [
        "   0.0 to   0.7   get        100-120",
        "   0.0 to   1.0 * get        100-130",
        "   1.0 to   2.0 * get        130-160",
        "3 requests, 2 of them one after the other",
    ]
    assert list(described([], 30.0)) == []
