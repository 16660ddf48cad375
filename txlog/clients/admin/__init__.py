"""The admin client, by subject: topics, groups, transactions, upkeep."""

from txlog.clients.admin.client import Admin
from txlog.clients.admin.descriptions import (
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
