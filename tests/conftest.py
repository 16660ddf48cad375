"""What holds for every test: reproducible property tests, and Spark with the settings of conf/."""

import os
import signal
import sys

import hypothesis
import pytest

from tests.source_tree import ROOT


def pytest_configure(config: pytest.Config) -> None:
    """As under `make`, so that a test run by hand does the same."""
    os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # A shell lets what it runs in the background ignore Ctrl-C, and so would every child.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # No deadline: how long an example takes says nothing on a machine that others share.
    hypothesis.settings.register_profile("txlog", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("txlog")
