"""A broker of Kafka 4.2: one node, KRaft, on a folder and the loopback interface."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.kafka.programs import java
from txlog.testing.s3_server import free_port

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
START_S = 120

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
"""


class Broker:
    """A running broker."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more` lines of its server.properties."""
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        properties.write_text(
            PROPERTIES.format(port=port, controller_port=free_port(), folder=folder) + more
        )
        with (folder / "broker.log").open("wb") as log:
            formatting = ("format", "-t", CLUSTER_ID, "-c", properties)
            subprocess.run(
                java("kafka.tools.StorageTool", *formatting), stdout=log, stderr=log, check=True
            )
            self.process = subprocess.Popen(java("kafka.Kafka", properties), stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            assert self.process.poll() is None, (folder / "broker.log").read_text()[-2_000:]
            time.sleep(0.2)
        raise AssertionError("the broker did not start")

    def stop(self) -> None:
        """Kill it: its log is of no more use."""
        self.process.kill()
        self.process.wait()
