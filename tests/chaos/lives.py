"""One life of a broker under the mixed load, and the duration of its start."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.chaos import topics
from tests.support.daemon import Daemon


class Life:
    """A daemon on a store."""

    def __init__(self, daemon: Daemon, started_s: float) -> None:
        self.daemon = daemon
        self.start_s = started_s

    @property
    def address(self) -> str:
        """The broker's address."""
        return self.daemon.address

    @property
    def nameserver(self) -> str:
        """The name server's address."""
        return self.daemon.nameserver

    def complaints(self) -> list[str]:
        """Return complaints about tracebacks in the log, which no fault excuses."""
        return [f"the broker logged {text[-1200:]}" for text in tracebacks(self.daemon.lines)]


def tracebacks(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the log's texts that contain a traceback or a fatal error of Python."""
    for line in lines:
        text = str(line.get("exception", "")) + str(line.get("event", ""))
        if "Traceback" in text or "Fatal Python error" in text:
            yield text


@asynccontextmanager
async def living(
    store: Path, environment: Mapping[str, str] | None = None, **settings: object
) -> AsyncIterator[Life]:
    """Start a broker; at the end, kill it if it is still running."""
    began_s = time.monotonic()
    daemon = Daemon(
        store,
        *topics.options(**settings),
        environment=environment,
    )
    async with daemon:
        yield Life(daemon, time.monotonic() - began_s)
