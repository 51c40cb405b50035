"""SharedBatches: prepared parts and decisions of batches that several brokers share.

A batch on several brokers is published by its job in these steps:

    1  each of them prepares: its parts are on disk, and stay until the batch is published there
    2  the sink's home decides which parts on which brokers make the batch; the first one counts
    3  all others publish theirs, then the home does: so a batch at the home is complete

If a job is repeated after step 2, it finds the decision at the home and continues with step 3.
Anything that it staged again is ignored. Belongs to the event loop.
"""

from collections.abc import Collection, Mapping

from rockhopper.broker.features.sinks.notes import SinkDecisions, SinkPrepared
from rockhopper.broker.features.sinks.staged_parts import PartKey, sink_key
from rockhopper.protocol.bodies.sinks import SinkPart, SinkShares


class SharedBatches:
    """The two tables (prepared, decisions), and queries of them."""

    def __init__(self, prepared: SinkPrepared, decisions: SinkDecisions) -> None:
        self._prepared = prepared
        self._decisions = decisions

    def keeps(self) -> set[PartKey]:
        """The parts that only the publication of their batch may remove."""
        return {
            (sink_key(sink_id), entry["batchId"], name)
            for sink_id, entry in self._prepared.entries.items()
            for name in entry["parts"]
        }

    def get_prepared_batch(self, sink_id: str) -> int:
        """The batch of a sink that has prepared parts; −1 if none."""
        entry = self._prepared.entries.get(sink_id)
        return int(entry["batchId"]) if entry else -1

    async def prepare(self, sink_id: str, batch_id: int, names: Collection[str]) -> None:
        """Keep these parts as well. Raises OSError, StoreError: they may be lost."""
        held = set(names)
        if self.get_prepared_batch(sink_id) == batch_id:
            held |= set(self._prepared.entries[sink_id]["parts"])
        self._prepared.set(sink_id, {"batchId": batch_id, "parts": sorted(held)})
        await self._prepared.saved()

    def decision(self, sink_id: str) -> tuple[int, SinkShares] | None:
        """The batch that is decided but not yet published on all brokers, and its shares."""
        entry = self._decisions.entries.get(sink_id)
        if entry is None:
            return None
        shares = {
            broker: [SinkPart(name, count) for name, count in parts]
            for broker, parts in entry["brokers"].items()
        }
        return int(entry["batchId"]), shares

    async def decide(
        self, sink_id: str, batch_id: int, shares: Mapping[str, Collection[SinkPart]]
    ) -> None:
        """Store the decision. Raises OSError, StoreError: it applies, but may be lost."""
        if self.decision(sink_id) is None:
            brokers = {
                broker: [[part.name, part.message_count] for part in parts]
                for broker, parts in shares.items()
            }
            self._decisions.set(sink_id, {"batchId": batch_id, "brokers": brokers})
        await self._decisions.saved()

    def published(self, sink_id: str, batch_id: int) -> None:
        """Drop the entries of a batch that is published here, and of earlier ones."""
        if 0 <= self.get_prepared_batch(sink_id) <= batch_id:
            self._prepared.forget(sink_id)
        decided = self._decisions.entries.get(sink_id)
        if decided is not None and decided["batchId"] <= batch_id:
            self._decisions.forget(sink_id)

    def purge(self) -> None:
        """Forget everything."""
        for table in (self._prepared, self._decisions):
            for sink_id in list(table.entries):
                table.forget(sink_id)
