"""One life of a broker under the mixed load, and how long its start took."""

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
        """The name service's address."""
        return self.daemon.nameserver

    def complaints(self) -> list[str]:
        """Lines of its log that no fault excuses: a traceback."""
        return [f"the broker logged {text[-1200:]}" for text in tracebacks(self.daemon.lines)]


def tracebacks(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The log's lines that hold a traceback, or are none of the broker's."""
    for line in lines:
        text = str(line.get("exception", "")) + str(line.get("event", ""))
        if "Traceback" in text or "Fatal Python error" in text:
            yield text


@asynccontextmanager
async def living(
    store: Path, environment: Mapping[str, str] | None = None, **settings: object
) -> AsyncIterator[Life]:
    """Start a broker; it is killed at the end if it still lives."""
    began_s = time.monotonic()
    daemon = Daemon(
        store,
        *topics.options(**settings),
        environment=environment,
    )
    async with daemon:
        yield Life(daemon, time.monotonic() - began_s)
