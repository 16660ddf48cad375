"""`txlog drill` on a bucket 30 ms away: none of its steps depends on a fast store."""

import pytest

from tests.processes.command_line import run
from txlog.client.admin import Admin
from txlog.testing.proxy_process import ProxyProcess
from txlog.testing.s3_server import S3Server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.slow,
    pytest.mark.extra,
    pytest.mark.timeout(900),
]

ROUND_TRIP_MS = 30.0
KILLS = 3


def test_I5_I6_I10_a_drill_on_a_far_bucket_reaches_every_point_and_loses_nothing() -> None:
    with S3Server.start() as server, ProxyProcess.to(server.endpoint_url, ROUND_TRIP_MS) as line:
        root, near = server.url("log"), server.storage_options
        far = {**server.env, "AWS_ENDPOINT_URL": line.endpoint_url}
        Admin(root, create=True, storage_options=near).create_topic("of-another-user")
        done = run("drill", "--kills", KILLS, "--seed", 11, "-o", "json", root=root, env=far)
        left = Admin(root, storage_options=near).list_topics()
    assert done.code == 0, done.out + done.err
    assert [(c["check"], c["found"]) for c in done.json["checks"] if c["status"] != "ok"] == []
    kills = done.json["kills"]
    assert [kill["is_reached"] for kill in kills] == [True] * KILLS
    assert kills[-1]["point"] == "at random"
    assert left == ["of-another-user"]
