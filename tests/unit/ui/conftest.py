"""The sample log, and a page over it, shared by tests that only read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.command_cases import make_logs
from tests.unit.ui.page import OpenPage, page_of


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ui")
    make_logs(folder)
    return folder / "log"


@pytest.fixture(scope="module")
def page(root: Path) -> Iterator[OpenPage]:
    with page_of(str(root)) as found:
        yield found
