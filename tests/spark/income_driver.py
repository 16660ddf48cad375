"""examples/income/job.py in a driver that a test kills: `python -m ... --root ROOT ...`."""

import sys

from pyspark.errors import PySparkException

from examples.income import job
from tests.spark.driver import SLOW_START, STARTS_MAX
from tests.spark.session import small_session


def main(arguments: list[str]) -> None:
    """Run the job; start it again if this machine was too busy to start its Python in time."""
    small_session("income")
    for start in range(STARTS_MAX):
        try:
            job.main(arguments)
            return
        except PySparkException as error:
            if SLOW_START not in str(error) or start + 1 == STARTS_MAX:
                raise


if __name__ == "__main__":
    main(sys.argv[1:])
