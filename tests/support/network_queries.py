"""Call the network source like Spark: whole batches, and streams with a checkpoint."""

import json
from typing import Any

from rockhopper.pipeline.network.rules import read_rules
from rockhopper.pipeline.network.source import NetworkReader
from rockhopper.pipeline.network.streaming import NetworkStreamReader
from tests.support.pipeline_broker import PipelineBroker


def options(broker: PipelineBroker, topic: str, **given: Any) -> dict[str, str]:
    base = {"nameServer": broker.nameserver, "columns": "body,queueId,queueOffset"}
    if not any(name in given for name in ("subscribe", "subscribePattern", "assign")):
        base["subscribe"] = topic
    return base | {name: str(value) for name, value in given.items()}


def rows_of(reader: Any, partitions: Any) -> list[dict[str, Any]]:
    return [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def read(broker: PipelineBroker, topic: str, **given: Any) -> list[str]:
    """Return the bodies that a batch reads, sorted."""
    reader = NetworkReader(read_rules(options(broker, topic, **given), streaming=False))
    return sorted(row["body"].decode() for row in rows_of(reader, reader.partitions()))


class Query:
    """Calls a stream's reader like Spark, and keeps a checkpoint."""

    def __init__(self, broker: PipelineBroker, topic: str, **given: Any) -> None:
        self._given = options(broker, topic, **given)
        self.now_s = 0.0
        self.planned: dict[str, Any] | None = None
        self.done: dict[str, Any] | None = None
        self.bodies: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Restart from the checkpoint."""
        rules = read_rules(self._given, streaming=True)
        self.reader = NetworkStreamReader(rules, now_s=lambda: self.now_s)
        self.reader.getDefaultReadLimit()
        if self.planned is not None and self.planned != self.done:
            self.run()

    def plan(self) -> bool:
        """Record the end of the next batch; return False if there is nothing new."""
        first = self.done is None
        start = self.done or self.reader.initialOffset()
        limit = self.reader.getDefaultReadLimit()
        self.planned = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        return first or json.dumps(self.planned) != json.dumps(self.done)

    def run(self) -> list[str]:
        assert self.planned is not None
        start = self.reader.initialOffset() if self.done is None else self.done
        partitions = self.reader.partitions(start, self.planned)
        found = [row["body"].decode() for row in rows_of(self.reader, partitions)]
        self.bodies += found
        self.done = self.planned
        return found

    def batch(self) -> list[str]:
        """Return the next batch, empty if there is nothing new."""
        return self.run() if self.plan() else []


def numbered(start: int, end: int) -> list[str]:
    return [f"{number:05d}" for number in range(start, end)]
