"""The admin client: what an operator may look at and do. kafka-python's words.

It only reads, or runs commands of the layers below; nothing is decided here. What it answers are
frozen values that the command line prints and a notebook can use.
"""

from __future__ import annotations

from collections.abc import Mapping

from txlog.client.admin.groups import GroupAdmin
from txlog.client.admin.topics import TopicAdmin
from txlog.client.admin.transactions import TransactionAdmin
from txlog.client.admin.upkeep import UpkeepAdmin
from txlog.engine.connection import Connection, connect


class Admin(TopicAdmin, GroupAdmin, TransactionAdmin, UpkeepAdmin):
    """Manages one log. Safe to use from threads."""

    def __init__(
        self,
        root: str | Connection,
        *,
        create: bool = False,
        storage_options: Mapping[str, object] | None = None,
        log_config: Mapping[str, object] | None = None,
    ) -> None:
        """`log_config`: dotted names of LogSettings, for a log that is created. Raises what
        `connect` does."""
        self.connection = (
            root
            if isinstance(root, Connection)
            else connect(
                root, create=create, storage_options=storage_options, log_config=log_config
            )
        )
