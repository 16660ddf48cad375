"""Which request goes to which function, and the versions that are served.

The versions are those before topic ids and KIP-848, which all clients still speak. A request that
is not here is not in ApiVersions either: its client knows then that this broker does not have it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsResponse

from txlog.kafka import admin as administration
from txlog.kafka import group_admin, requests, security

if TYPE_CHECKING:
    from txlog.kafka.server import KafkaServer

Handler: TypeAlias = "Callable[[KafkaServer, Any], Awaitable[Any]]"


async def api_versions(server: KafkaServer, request: Any) -> Any:
    """ApiVersions."""
    return ApiVersionsResponse(error_code=0, api_keys=API_VERSIONS)


def _table(rows: Iterable[tuple[type[ApiMessage], int, int, Callable[..., Any]]]) -> dict[int, Any]:
    return {kind.API_KEY: (kind, (low, high), _handler(call)) for kind, low, high, call in rows}


def _handler(call: Callable[..., Any]) -> Handler:
    """A function that is not async reads or changes the log, and is called in a thread."""
    if inspect.iscoroutinefunction(call):
        return call

    async def in_thread(server: KafkaServer, request: Any) -> Any:
        return await server.call(call, server, request)

    return in_thread


REQUESTS: Mapping[int, tuple[Any, tuple[int, int], Handler]] = _table(
    (
        (producer.ProduceRequest, 3, 8, requests.produce),
        (consumer.FetchRequest, 4, 11, requests.fetch),
        (consumer.ListOffsetsRequest, 1, 7, requests.list_offsets),
        (metadata.MetadataRequest, 0, 9, requests.metadata_of),
        (consumer.OffsetCommitRequest, 2, 8, requests.offset_commit),
        (consumer.OffsetFetchRequest, 1, 7, requests.offset_fetch),
        (metadata.FindCoordinatorRequest, 0, 3, requests.find_coordinator),
        (consumer.JoinGroupRequest, 0, 7, requests.join_group),
        (consumer.SyncGroupRequest, 0, 4, requests.sync_group),
        (consumer.HeartbeatRequest, 0, 4, requests.heartbeat),
        (consumer.LeaveGroupRequest, 0, 4, requests.leave_group),
        (metadata.ApiVersionsRequest, 0, 3, api_versions),
        (sasl.SaslHandshakeRequest, 1, 1, security.handshake),
        (sasl.SaslAuthenticateRequest, 0, 2, security.authenticate),
        (producer.InitProducerIdRequest, 0, 4, requests.init_producer_id),
        (producer.AddPartitionsToTxnRequest, 0, 3, requests.add_partitions),
        (producer.AddOffsetsToTxnRequest, 0, 3, requests.add_offsets),
        (producer.EndTxnRequest, 0, 3, requests.end_txn),
        (producer.TxnOffsetCommitRequest, 0, 3, requests.txn_offset_commit),
        (admin.CreateTopicsRequest, 0, 4, administration.create_topics),
        (admin.DeleteTopicsRequest, 0, 5, administration.delete_topics),
        (admin.CreatePartitionsRequest, 0, 3, administration.create_partitions),
        (admin.DeleteRecordsRequest, 0, 2, administration.delete_records),
        (admin.DescribeConfigsRequest, 1, 4, administration.describe_configs),
        (admin.AlterConfigsRequest, 0, 2, administration.alter_configs),
        (admin.IncrementalAlterConfigsRequest, 0, 1, administration.incremental_alter_configs),
        (admin.DescribeClusterRequest, 0, 2, administration.describe_cluster),
        (admin.DescribeLogDirsRequest, 1, 4, administration.describe_log_dirs),
        (admin.ListPartitionReassignmentsRequest, 0, 0, administration.list_reassignments),
        (admin.ListGroupsRequest, 0, 5, group_admin.list_groups),
        (admin.DescribeGroupsRequest, 0, 6, group_admin.describe_groups),
        (admin.DeleteGroupsRequest, 0, 2, group_admin.delete_groups),
        (consumer.OffsetDeleteRequest, 0, 0, group_admin.delete_offsets),
        (admin.DescribeProducersRequest, 0, 0, group_admin.describe_producers),
        (admin.ListTransactionsRequest, 0, 1, group_admin.list_transactions),
        (admin.DescribeTransactionsRequest, 0, 0, group_admin.describe_transactions),
    )
)
"""By key: the class of the request, its versions, and who answers it."""

API_VERSIONS_KEY = int(metadata.ApiVersionsRequest.API_KEY)
OPEN_TO_ALL = frozenset(
    {API_VERSIONS_KEY, sasl.SaslHandshakeRequest.API_KEY, sasl.SaslAuthenticateRequest.API_KEY}
)
"""Requests of a client that has not proved who it is."""
PRODUCE_KEY = int(producer.ProduceRequest.API_KEY)

API_VERSIONS = [
    ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
    for key, (_, (low, high), _) in sorted(REQUESTS.items())
]
