"""A broker that receives bad input, and the proof that it is unharmed.

``Unharmed`` runs a broker on a store of its own. ``check`` verifies what must hold after any input:
a neighbour still gets its answers, the log names each peer at most once and reports no error of
ours, and no exception reached the event loop. At the end a copy of the store, opened as after a
crash, has no holes, no torn end and nothing that recovery would refuse.

Tests may share one: ``afresh`` removes what the last one left.
"""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Self

import pytest
import structlog
from structlog.testing import LogCapture

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.opening import OpenedStore
from rockhopper.protocol.addresses import host_bytes
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer

NEIGHBOUR_TOPIC = "neighbour"


class Unharmed:
    """A broker under *root*, a healthy client of it, and the log."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None = None
    ) -> None:
        self._root = root
        self._capture = LogCapture()
        self._problems: list[dict[str, Any]] = []
        _capture_logs(self._capture, monkeypatch)
        self.broker = Broker(
            build_config(
                TEMPORARY_SETTINGS
                | {"storePathRootDir": str(root / "store"), "brokerIP1": "127.0.0.1"}
                | {"mappedFileSizeCommitLog": str(1 << 20)}
                | (settings or {})
            )
        )
        self._sent = 0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self._problems.append(context))
        await self.broker.start()
        self._neighbour = RawPeer(self.broker.address)
        await self._neighbour.__aenter__()
        await self.check_neighbour()
        self._topics = set(self.broker.tables.topics.configs)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._check_store()
        await self._neighbour.__aexit__()
        await self.broker.stop()

    @property
    def lines(self) -> list[MutableMapping[str, Any]]:
        """All logged entries, of any level."""
        return self._capture.entries

    async def check(self) -> None:
        """Check the invariants that hold after any input; the store is checked at the end."""
        await self.check_neighbour()
        self.check_log()

    async def afresh(self) -> Self:
        """Delete the topics of others and forget the log, for the next test."""
        for topic in self.broker.tables.topics.configs.keys() - self._topics:
            ask = self._neighbour.ask
            answer = await ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        # Otherwise topics of the same names would continue after the offsets of the last test.
        self.broker.tables.catalog.topic_ends.clear()
        self._capture.entries.clear()
        return self

    async def check_neighbour(self) -> None:
        """Send and read a message with a client that was connected all along."""
        body = f"neighbour {self._sent}".encode()
        ask = self._neighbour.ask
        answer = await ask(RequestCode.SEND_MESSAGE, send_fields(NEIGHBOUR_TOPIC), body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert (answer.ext or {})["queueOffset"] == str(self._sent)
        answer = await ask(RequestCode.PULL_MESSAGE, pull_fields(NEIGHBOUR_TOPIC, self._sent))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert body in answer.body
        self._sent += 1

    def check_log(self) -> None:
        """Check that there is at most one line for each connection, and no error of ours."""
        assert self._problems == [], self._problems
        ours = [line for line in self.lines if line["log_level"] in ("error", "critical")]
        assert ours == [], ours
        peers = Counter(line["peer"] for line in self.lines if "peer" in line)
        assert all(count == 1 for count in peers.values()), peers

    def _check_store(self) -> None:
        """Check that a copy of the store opens as after a crash now, and has the same contents."""
        copy = self._root / "copy"
        # Threads save the tables, and recovery ignores them.
        ignore = shutil.ignore_patterns("config", "*.tmp")
        shutil.copytree(self.broker.config.store.root, copy, ignore=ignore)
        try:
            self._check_copy(copy)
        finally:
            shutil.rmtree(copy)

    def _check_copy(self, copy: Path) -> None:
        broker = self.broker
        config = build_config(
            TEMPORARY_SETTINGS
            | {"storePathRootDir": str(copy)}
            | {"mappedFileSizeCommitLog": str(broker.config.store.commit_log_file_size_bytes)}
        ).store
        opened = OpenedStore(
            config,
            now_ms=broker.clock.wall_ms,
            wall_ms=broker.clock.wall_ms,
            store_host=host_bytes("127.0.0.1", 10_911),
            delay_ms=lambda level: 1000,
            batch_topic=broker.tables.topics.is_batch,
        )
        try:
            report = opened.report
            assert (report.holes, report.cut, report.lost_messages) == ([], None, {})
            assert opened.commit_log.written_offset == broker.store.log.written_offset
            for topic in list(broker.tables.topics.configs):
                for queue_id in broker.store.reading.queue_ids(topic):
                    queue = opened.queues.get(topic, queue_id)
                    assert queue is not None
                    held = (max(queue.min_offset, 0), queue.max_offset)
                    assert held == broker.store.reading.queue_range(topic, queue_id)
        finally:
            opened.close(clean=False)


def _capture_logs(capture: LogCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace every logger of the broker by *capture*, whatever was configured before."""
    logger: Any = structlog.wrap_logger(
        structlog.testing.ReturnLogger(),
        processors=[capture],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )
    for name, module in list(sys.modules.items()):
        if name.startswith("rockhopper.broker.") and hasattr(getattr(module, "log", None), "bind"):
            monkeypatch.setattr(module, "log", logger)
