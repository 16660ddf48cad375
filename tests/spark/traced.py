"""A query whose Python processes write their spans into files, one for each process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from spark_plugin.otel import instrument
from tests.spark.bench import bench_in
from tests.spark.session import small_session

FOLDER = "TXLOG_TESTS_SPANS"


def set_up() -> None:
    """Spans of this process, as a JSON object a line."""
    out = (Path(os.environ[FOLDER]) / str(os.getpid())).open("w")
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(
            ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
        )
    )
    trace.set_tracer_provider(provider)
    instrument()


def main(folder: str) -> None:
    """Copy numbers from a topic to another one, in two batches."""
    spark = small_session("txlog traced")
    with bench_in(spark, Path(folder)) as bench:
        for count in (4, 6):
            bench.log.put("numbers", count)
            bench.run(bench.numbers())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
