"""A broker without sockets whose frames go through the hot pass, or the general path alone."""

import errno
import random
from pathlib import Path

import pytest

from rockhopper.broker.hot.hot_pass import HotPass
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, Frame, FrameDecoder
from tests.support.direct import pull_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

PULL_FIELDS = pull_fields("orders", 0) | {
    "consumerGroup": "group",
    "sysFlag": "0",
    "subVersion": "1",
    "expressionType": "TAG",
}
"""A pull of the group "group" that does not wait."""


class HotPeer(Peer):
    """A peer, from the hot pass's view."""

    writing_paused = False

    def __init__(self, port: int = 40_000) -> None:
        super().__init__(port=port)
        self.backlog: list[Frame] = []
        self.failure: ProtocolError | None = None
        self.responses: list[int] = []

    def write(self, data: bytes) -> None:
        """Record an answer; a connection writes nothing for an empty one."""
        if data:
            super().write(data)

    def drop_served(self, count: int) -> None:
        """Remove the first frames of the backlog."""
        del self.backlog[:count]

    def fail(self, error: ProtocolError) -> None:
        """Record that the broker closes it for a protocol error."""
        self.failure = error

    def response_received(self, command: Command) -> None:
        """Record an answer to a request of the broker."""
        self.responses.append(command.opaque)

    def answers(self) -> list[tuple[Command, bytes]]:
        """Return the answers in order."""
        decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
        return [
            (decode_header(kind, header), body)
            for kind, header, body in decoder.feed(b"".join(self.written))
        ]


class HotBroker:
    """A broker with its hot pass."""

    def __init__(
        self, root: Path, settings: dict[str, str] | None = None, access: AccessRules | None = None
    ) -> None:
        self.root = root
        self.now_s = 0.0
        self.served = ServedBroker(root, Clock(), settings or {}, access)
        served = self.served
        served.create_topic("orders", 3)
        served.create_topic("readonly", perm=4)
        served.create_topic("writeonly", perm=2)
        served.tables.topics.put(
            TopicConfig(
                "Batches",
                read_queue_nums=2,
                write_queue_nums=2,
                attributes={"queue.type": "BatchCQ"},
            )
        )
        self.hot = HotPass(
            served.kernel,
            served.features.values(),
            served.dispatcher,
            clock=lambda: self.now_s,
        )
        self.peer = HotPeer()
        # Makes the keys that the broker assigns to messages without one reproducible.
        served.kernel.sender.unique_ids.salt = 0

    def close(self) -> None:
        """Close the store without saving."""
        self.served.store.abandon()

    def serve(self, frames: list[Frame]) -> None:
        """Serve *frames* as one pass."""
        random.seed(1)
        assert self.hot.serve_frames(self.peer.connection, frames) == len(frames)

    def serve_turn(self, *peers: HotPeer) -> None:
        """Serve the backlogs of *peers* as one turn of the loop does."""
        random.seed(1)
        self.hot.serve_together([peer.connection for peer in peers], lambda: True)
        for peer in peers:
            frames, peer.backlog = peer.backlog, []
            if frames:
                assert self.hot.serve_frames(peer.connection, frames) == len(frames)

    def serve_generally(self) -> None:
        """Serve all requests by the dispatcher from now on."""
        vars(self.hot)["_serve_plain"] = lambda *_: 0
        vars(self.hot)["serve_together"] = lambda *_: None

    def answers(self) -> list[tuple[Command, bytes]]:
        """Return the answers in order."""
        return self.peer.answers()

    def log_bytes(self) -> bytes:
        """Return the bytes of the commit log."""
        end = self.served.store.log.written_offset
        return (self.root / "commitlog" / f"{0:020d}").read_bytes()[:end] if end else b""


def fail_writes(patch: pytest.MonkeyPatch, calls_before: int = 0) -> None:
    """Make writes to mapped files fail after some that succeed."""
    real, calls = MappedFile.pwrite, []

    def pwrite(file: MappedFile, position: int, data: bytes) -> None:
        calls.append(position)
        if len(calls) > calls_before:
            raise OSError(errno.EIO, "no")
        real(file, position, data)

    patch.setattr(MappedFile, "pwrite", pwrite)
