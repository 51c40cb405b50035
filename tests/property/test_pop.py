"""Whatever consumers do and however often the broker is killed: none lost, no settled one back."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.pop_world import GROUP, TOPIC, Popped, PopWorld


class Consumption(RuleBasedStateMachine):
    """A group that pops, acknowledges, changes its mind and forgets, over a broker that dies."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.world = PopWorld(Path(self.directory.name) / "store", retry_max_times=3)
        self.sent = 0
        self.held: list[Popped] = []
        self.settled: set[bytes] = set()

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.world.send(b"%d" % self.sent)
            self.sent += 1

    @rule(count=st.integers(1, 5), invisible_ms=st.integers(0, 50))
    def pop(self, count: int, invisible_ms: int) -> None:
        for popped in self.world.pop(count, invisible_ms):
            assert popped.body not in self.settled, "acknowledged, and handed out again"
            assert popped.message.topic == TOPIC
            self.held.append(popped)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        popped = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        lane = self.world.pop_service.lanes.get(GROUP, popped.topic, 0)
        assert lane is not None
        entry = lane.entries.get(popped.offset)
        counts = entry is not None and not entry.is_copied and entry.pop_ms == popped.info.pop_ms
        self.world.ack(popped)
        if counts:
            self.settled.add(popped.body)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), invisible_ms=st.integers(0, 100))
    def change(self, data: st.DataObject, invisible_ms: int) -> None:
        popped = self.held[data.draw(st.integers(0, len(self.held) - 1))]
        self.world.change(popped, invisible_ms)

    @rule(ms=st.integers(1, 60))
    def pass_time(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule()
    def flush(self) -> None:
        self.world.flush()

    @rule()
    def kill(self) -> None:
        self.world.kill()

    @invariant()
    def committed_offset_is_the_low_water_mark(self) -> None:
        for lane in self.world.pop_service.lanes:
            committed = self.world.offsets.get(lane.topic, lane.group, lane.queue_id)
            assert committed is not None
            assert committed <= lane.low_water

    def teardown(self) -> None:
        found = set(self.settled)
        for _ in range(8):
            self.world.pass_time(1000)
            while popped := self.world.pop(32, 100):
                for each in popped:
                    assert each.body not in self.settled
                    found.add(each.body)
        self.world.pass_time(1000)
        found |= {message.body for message in self.world.dead()}
        assert found == {b"%d" % number for number in range(self.sent)}, "lost"
        self.world.abandon()
        self.directory.cleanup()


TestConsumption = Consumption.TestCase
TestConsumption.settings = settings(stateful_step_count=40)
