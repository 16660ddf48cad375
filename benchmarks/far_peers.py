"""Other clients on the same far store: one bare conditional PUT, and an append to a Delta table.

Each is measured if its package is installed (`pip install txlog-spark[bench]`). The table has as
many bytes as txlog's transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import count

import pyarrow as pa

from benchmarks.far_store import FarStore
from benchmarks.figures import Side, timed
from txlog.testing.s3_server import ACCESS_KEY, SECRET_KEY

BODY_BYTES = 400_000
REGION = "us-east-1"


def peers(store: FarStore, table: pa.Table) -> dict[str, Side]:
    """One side for each installed package, by the name of its row."""
    makers: dict[str, tuple[str, Callable[[FarStore, pa.Table], Side]]] = {
        "obstore: one conditional PUT of 400 KB": ("obstore", _obstore_put),
        "delta-rs: append of 400 KB": ("deltalake", _delta_append),
    }
    for name, (package, _) in makers.items():
        if find_spec(package) is None:
            print(f"  not measured, as {package} is not installed: {name}", flush=True)
    return {
        name: make(store, table)
        for name, (package, make) in makers.items()
        if find_spec(package) is not None
    }


def _obstore_put(store: FarStore, _: pa.Table) -> Side:
    import obstore
    from obstore.store import S3Store

    bucket = S3Store(
        store.server.bucket,
        prefix="obstore",
        endpoint=store.line.endpoint_url,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region=REGION,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
    numbers, body = count(), b"x" * BODY_BYTES

    def put() -> None:
        obstore.put(bucket, f"{next(numbers)}", body, mode="create", use_multipart=False)

    return lambda: timed(put)


def _delta_append(store: FarStore, table: pa.Table) -> Side:
    from deltalake import write_deltalake

    options = {
        "AWS_ENDPOINT_URL": store.line.endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }
    place = store.server.url("delta-rs")

    def append() -> None:
        write_deltalake(place, table, mode="append", storage_options=options)

    return lambda: timed(append)
