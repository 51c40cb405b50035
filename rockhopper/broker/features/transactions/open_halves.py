"""OpenHalves: the half messages that are neither committed nor rolled back.

RocketMQ finds them by comparing its half queue with its op queue every 30 s. Here a table has them
by their offset in the half queue, and a heap has the time of the next check of each. This module
uses no clock, store or socket.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator

# Entries of the heap and of the order that nothing belongs to any more, before they are swept out.
DEAD_ENTRIES_MAX = 1024


class OpenHalf:
    """One half message: its offsets, its producer group, and its number of checks.

    ``copies`` are the half queue offsets of earlier copies of the same message, which RocketMQ
    makes at each check. ``op_floor`` is an offset of the op queue: the op messages of this half
    message and of later ones are not before it. ``is_verified``: the log has no final message for
    it. ``is_committed``: the log has one, and only the op message is missing. ``ahead_ms`` is how
    far its store time was ahead of the time by which the age of the log is measured.
    """

    __slots__ = (
        "ahead_ms",
        "check_times",
        "copies",
        "due_ms",
        "group",
        "is_committed",
        "is_verified",
        "log_offset",
        "offset",
        "op_floor",
        "stored_ms",
    )

    def __init__(
        self,
        offset: int,
        log_offset: int,
        group: str,
        stored_ms: int,
        *,
        op_floor: int = 0,
        check_times: int = 0,
        is_verified: bool = True,
        copies: tuple[int, ...] = (),
    ) -> None:
        self.offset = offset
        self.log_offset = log_offset
        self.group = group
        self.stored_ms = stored_ms
        self.ahead_ms = 0
        self.op_floor = op_floor
        self.check_times = check_times
        self.is_verified = is_verified
        self.is_committed = False
        self.copies = copies
        self.due_ms = 0

    @property
    def is_as_it_came(self) -> bool:
        """Whether it is known to be open, was never checked, and has no copy."""
        return (
            self.is_verified and not self.is_committed and not self.check_times and not self.copies
        )


class OpenHalves:
    """Half messages by offset, by time of the next check, and by the group they wait for.

    Offsets are added in ascending order.
    """

    def __init__(self) -> None:
        self._halves: dict[int, OpenHalf] = {}
        self._copies: dict[int, OpenHalf] = {}
        self.order: deque[int] = deque()
        self.dues: list[tuple[int, int]] = []
        self._waiting: dict[str, OrderedDict[int, None]] = {}
        # Those whose producer came back: due at once.
        self._returned: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._halves)

    def __iter__(self) -> Iterator[OpenHalf]:
        return iter(list(self._halves.values()))

    def get(self, offset: int) -> OpenHalf | None:
        """Return the open half message at *offset* of the half queue, or the one copied there."""
        half = self._halves.get(offset)
        return half if half is not None else self._copies.get(offset)

    def first(self) -> OpenHalf | None:
        """The one with the smallest offset: all before it have ended."""
        order, halves = self.order, self._halves
        while order and order[0] not in halves:
            order.popleft()
        return halves[order[0]] if order else None

    def register(self, half: OpenHalf, due_ms: int) -> None:
        """Add a half message; its first check is at *due_ms*."""
        self._halves[half.offset] = half
        self.order.append(half.offset)
        for offset in half.copies:
            self._copies[offset] = half
        self.schedule(half, due_ms)

    def remove(self, half: OpenHalf) -> None:
        """Remove a half message that has ended."""
        self._halves.pop(half.offset, None)
        for offset in half.copies:
            self._copies.pop(offset, None)
        self.stop_waiting(half)
        alive = len(self._halves)
        if len(self.order) > 2 * alive + DEAD_ENTRIES_MAX:
            self.order = deque(offset for offset in self.order if offset in self._halves)
        if len(self.dues) > 2 * alive + DEAD_ENTRIES_MAX:
            self._rebuild_dues()

    def schedule(self, half: OpenHalf, due_ms: int) -> None:
        """Check *half* at *due_ms* instead of its former time."""
        half.due_ms = due_ms
        heapq.heappush(self.dues, (due_ms, half.offset))

    def next_due_ms(self) -> int | None:
        """The time of the next check, 0 for at once; None if no half message is open."""
        if self._returned:
            return 0
        dues = self.dues
        while dues and not self._is_alive(dues[0]):
            heapq.heappop(dues)
        return dues[0][0] if dues else None

    def take_due(self, now_ms: int) -> OpenHalf | None:
        """The next due half message; the caller must reschedule or remove it."""
        if self._returned:
            return self._halves[self._returned.popitem(last=False)[0]]
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        return self._halves[heapq.heappop(self.dues)[1]]

    def _is_alive(self, entry: tuple[int, int]) -> bool:
        half = self._halves.get(entry[1])
        return half is not None and half.due_ms == entry[0]

    def _rebuild_dues(self) -> None:
        self.dues = [(half.due_ms, half.offset) for half in self._halves.values()]
        heapq.heapify(self.dues)

    def await_producer(self, half: OpenHalf) -> None:
        """Record that no producer of its group is online."""
        self._waiting.setdefault(half.group, OrderedDict())[half.offset] = None

    def producer_came(self, group: str) -> bool:
        """Make the half messages that wait for *group* due; return whether there are any."""
        offsets = self._waiting.pop(group, OrderedDict())
        if not self._returned:
            # However many they are, this takes no time.
            self._returned, offsets = offsets, self._returned
        self._returned |= offsets
        return bool(self._returned)

    def waiting_count(self) -> int:
        """Return how many half messages wait until a producer of their group is online."""
        return sum(len(offsets) for offsets in self._waiting.values())

    def stop_waiting(self, half: OpenHalf) -> None:
        """Record that *half* no longer waits for a producer."""
        self._returned.pop(half.offset, None)
        offsets = self._waiting.get(half.group)
        if offsets is not None:
            offsets.pop(half.offset, None)
            if not offsets:
                del self._waiting[half.group]
