"""The committed offsets of a group: stored by the brokers, or in a local file (broadcast).

The file of a broadcast group has RocketMQ's format. Each group and instance has its own:

    ~/.rocketmq_offsets/<host>@<instance>/<group>/offsets.json
    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5},"logEpochs":{"a":["9f…"]}}

`logEpochs`, which RocketMQ's clients ignore, lists for each broker the epochs of its log in which
the offsets were read: see histories.py. Fields that a later release adds are preserved.

The instance is DEFAULT. If other consumers of the group run on this machine, it is DEFAULT-2 and so
on: each receives every message, so each needs its own offsets. A lock file in the directory marks
an instance as used.
"""

import asyncio
import errno
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Protocol

from rockhopper.client.consuming.histories import Epochs, Histories
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.queues import MessageQueue
from rockhopper.paths import check_relative, expand_home
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import MessageQueueKey, ResetOffsetBody
from rockhopper.protocol.errors import ProtocolError
from rockhopper.sockets import find_own_host

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

_INSTANCES_MAX = 1000
_OFFSETS, _EPOCHS = "offsetTable", "logEpochs"


class Progress(Protocol):
    """Stores the offsets at which a group continues."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the offset to continue at; None if none is stored."""

    async def store_first(self, queue: MessageQueue, offset: int) -> None:
        """Store the first offset, which the broker has just returned.

        Raises ClientError or OSError.
        """

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """Store the offset to continue at. Raises ClientError or OSError."""

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """Remember an offset that could not be stored; `load` treats it as stored."""

    async def open(self) -> None:
        """Prepare for use. Raises OSError."""

    async def close(self) -> None:
        """Release the open resources."""


class BrokerProgress:
    """The offsets of a clustering group, stored at the broker of each queue."""

    def __init__(
        self, offsets: QueueOffsets, group: str, histories: Histories | None = None
    ) -> None:
        self._offsets = offsets
        self._histories = histories
        self._group = group
        self._not_stored: dict[MessageQueue, int] = {}

    async def load(self, queue: MessageQueue) -> int | None:
        """See Progress."""
        committed = await self._offsets.committed(self._group, queue)
        ours = self._not_stored.get(queue)
        if ours is None:
            return committed
        ours = await self._committable(queue, ours)
        if committed is None or committed < ours:
            await self.store(queue, ours)
            return ours
        del self._not_stored[queue]
        return committed

    async def store_first(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        await self.store(queue, offset)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        offset = await self._committable(queue, offset)
        await self._offsets.commit(self._group, queue, offset)
        self._not_stored.pop(queue, None)

    async def _committable(self, queue: MessageQueue, offset: int) -> int:
        if self._histories is None:
            return offset
        return await self._histories.committable(queue, offset)

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        self._not_stored[queue] = offset

    async def open(self) -> None:
        """See Progress."""

    async def close(self) -> None:
        """See Progress."""


class LocalProgress:
    """The offsets of a broadcast group, in a file that is replaced as a whole."""

    def __init__(
        self, group: str, directory: Path | str | None = None, histories: Histories | None = None
    ) -> None:
        self._group = group
        self._histories = histories
        self._root = Path(directory) if directory else None
        self._offsets: dict[MessageQueue, int] = {}
        self._unknown: dict[str, Any] = {}
        self._lock: IO[bytes] | None = None
        self._is_closed = False
        self._writing = asyncio.Lock()
        self._store_count = 0
        self._written_count = 0
        self.path: Path | None = None
        """The path of the file, once it is open."""

    async def open(self) -> None:
        """See Progress."""
        self.path = await asyncio.to_thread(self.claim)
        self._offsets, epochs, self._unknown = await asyncio.to_thread(self._read, self.path)
        if self._histories is not None:
            for queue in self._offsets:
                self._histories.recall(queue, epochs.get(queue.broker_name, ()))

    async def load(self, queue: MessageQueue) -> int | None:
        """See Progress."""
        return self._offsets.get(queue)

    async def store_first(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        if self._histories is not None:
            await self._histories.record_history(queue)
        await self.store(queue, offset)

    async def store(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        self._offsets[queue] = offset
        self._store_count += 1
        ours = self._store_count
        async with self._writing:
            if self._written_count >= ours:
                return  # another store has written this offset since
            await asyncio.sleep(0)  # run concurrent stores first, so they share one write
            count = self._store_count
            text = _text(self._offsets, self._histories, self._unknown)
            assert self.path is not None
            await asyncio.to_thread(_replace, self.path, text)
            self._written_count = count

    def remember(self, queue: MessageQueue, offset: int) -> None:
        """See Progress."""
        self._offsets[queue] = offset

    async def close(self) -> None:
        """See Progress."""
        self._is_closed = True
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def claim(self) -> Path:
        root = self._root
        try:
            if root is None:
                root = expand_home("~") / ".rocketmq_offsets"
            path = self._claim_instance(root)
        except OSError as error:
            raise OSError(
                error.errno or errno.EIO,
                "the offsets of a broadcast consumer cannot be stored "
                f"({error.strerror or error}): pass offsets_directory",
                error.filename or str(root or "~"),
            ) from error
        if self._is_closed:  # closed while this thread was running
            self._release()
        return path

    def _claim_instance(self, root: Path) -> Path:
        host = find_own_host()
        for number in range(1, _INSTANCES_MAX):
            instance = "DEFAULT" if number == 1 else f"DEFAULT-{number}"
            name = check_relative(self._group.replace("/", "_"))
            directory = root / f"{host}@{instance}" / name
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "lock").open("ab")
            if fcntl is None:
                self._lock = lock
                return directory / "offsets.json"
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._lock = lock
            return directory / "offsets.json"
        raise OSError(f"{_INSTANCES_MAX} consumers of {self._group!r} run on this machine already")

    def _read(
        self, path: Path
    ) -> tuple[dict[MessageQueue, int], dict[str, Epochs], dict[str, Any]]:
        try:
            text = path.read_bytes()
            table = ResetOffsetBody.decode(text).offset_table
            document = fastjson.loads(text)
        except FileNotFoundError:
            return {}, {}, {}
        except ProtocolError as error:
            log.error("%s cannot be read (%s): starting like a new group", path, error)
            return {}, {}, {}
        offsets = {
            MessageQueue(key.topic, key.broker_name, key.queue_id): offset
            for key, offset in table.items()
        }
        unknown = {name: document[name] for name in document.keys() - {_OFFSETS, _EPOCHS}}
        return offsets, _epochs_of(document), unknown


def _epochs_of(document: Any) -> dict[str, Epochs]:
    epochs = document.get(_EPOCHS)
    if not isinstance(epochs, dict):
        return {}
    return {
        broker_name: tuple(each for each in ids if isinstance(each, str))
        for broker_name, ids in epochs.items()
        if isinstance(ids, list)
    }


def _epochs_by_broker(queues: Iterable[MessageQueue], histories: Histories) -> dict[str, Epochs]:
    """Return for each broker the oldest epochs in which one of its queues was read."""
    found: dict[str, Epochs] = {}
    for queue in queues:
        epochs = histories.read_in(queue)
        known = found.get(queue.broker_name)
        if epochs and (known is None or epochs[0] in known):
            found[queue.broker_name] = epochs
    return found


def _text(
    offsets: dict[MessageQueue, int], histories: Histories | None, unknown: dict[str, Any]
) -> bytes:
    table = {
        MessageQueueKey(queue.topic, queue.broker_name, queue.queue_id): offset
        for queue, offset in sorted(offsets.items())
    }
    epochs = {} if histories is None else _epochs_by_broker(offsets, histories)
    lists = {broker_name: list(ids) for broker_name, ids in sorted(epochs.items())}
    text = fastjson.dumps({_OFFSETS: table, **({_EPOCHS: lists} if lists else {}), **unknown})
    return text if isinstance(text, bytes) else text.encode()


def _replace(path: Path, text: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix="offsets.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
