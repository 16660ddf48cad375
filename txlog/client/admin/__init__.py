"""The admin client, by subject: topics, groups, transactions, upkeep."""

from txlog.client.admin.client import Admin
from txlog.client.admin.descriptions import (
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from txlog.engine.new_topic import NewTopic

__all__ = [
    "Admin",
    "NewTopic",
    "PartitionDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
