"""A writer of replicated state that keeps what the channels write."""

from rockhopper.broker.kernel.state_channels import Channel, ReplicatedTable


class NotingWriter:
    """Stands in for the writer of a master."""

    def __init__(self) -> None:
        self.is_writing = self.leads_alone = True
        self.written: list[tuple[int, bytes, Channel, int]] = []
        self.entries: list[tuple[ReplicatedTable, str]] = []
        self.intervals_ms: list[int] = []
        self.flush_count = self.confirmed_count = 0
        self.failure: Exception | None = None
        """Raised instead of a confirmation."""

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        """Keep a change."""
        self.written.append((kind, payload, channel, interval_ms))

    def write_entry(self, table: ReplicatedTable, name: str, channel: Channel) -> None:
        """Keep a changed entry."""
        self.entries.append((table, name))

    def gather(self, interval_ms: int) -> None:
        """Keep the interval."""
        self.intervals_ms.append(interval_ms)

    def flush(self) -> None:
        """Count the calls."""
        self.flush_count += 1

    async def wait_until_confirmed(self) -> None:
        """Count the calls."""
        self.confirmed_count += 1
        if self.failure is not None:
            raise self.failure
