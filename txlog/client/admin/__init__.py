"""The admin client, by subject: topics, groups, transactions, upkeep."""

from txlog.client.admin.client import Admin
from txlog.client.admin.descriptions import (
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "Admin",
    "NewTopic",
    "PartitionDescription",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
