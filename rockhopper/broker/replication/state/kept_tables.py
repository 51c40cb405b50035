"""The replicated tables, by the names of their files."""

from typing import NamedTuple

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.state_channels import Channel
from rockhopper.broker.kernel.tables.json_table import JsonTable
from rockhopper.broker.name_server.values.kv_config import KeyValueTable


class KeptTables(NamedTuple):
    """All replicated tables: those in *tables*, and some that it does not contain."""

    tables: Tables
    values: KeyValueTable | None
    """The values of this process's name server, if it has one."""

    @property
    def confirmed(self) -> dict[str, JsonTable]:
        """The tables whose changes are answered once the replicas have them."""
        tables = self.tables
        return _by_name(
            tables.topics,
            tables.groups,
            tables.topic_ids,
            tables.topic_ends,
            tables.history,
            tables.users,
            tables.acls,
            *([] if self.values is None else [self.values]),
            *self._of_features(Channel.CONFIRMED),
        )

    @property
    def gathered(self) -> dict[str, JsonTable]:
        """The tables whose changes may be replicated a moment later."""
        return _by_name(self.tables.subscriptions, *self._of_features(Channel.GATHERED))

    @property
    def every(self) -> dict[str, JsonTable]:
        """The tables of both kinds, and those that are replicated in other ways."""
        others = _by_name(self.tables.offsets, self.tables.delay_offsets)
        return self.confirmed | self.gathered | others

    def _of_features(self, channel: Channel) -> list[JsonTable]:
        return [
            table
            for state in self.tables.states
            for table, its_channel in state.tables.items()
            if its_channel is channel
        ]


def _by_name(*tables: JsonTable) -> dict[str, JsonTable]:
    return {table.path.name: table for table in tables}
