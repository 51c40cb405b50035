"""A delayOffset.json that is damaged or gone: nothing is delivered twice, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.broker.kernel.scheduled.test_delayed import MINUTE, TEN_SECONDS, Rig

DAMAGED = b'{"offsetTable":{3:\0\0'


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def restart_without_table(rig: Rig, content: bytes | None) -> None:
    """Stop, lose the table, its backup and the journal, and open the store again."""
    rig.restart()
    path = rig.broker.kernel.scheduled.delayed.table.path
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    for note in (rig.root / "rockhopper" / "delay").glob("*"):
        note.unlink()
    table = rig.broker.kernel.scheduled.delayed.table
    table.offsets.clear()
    assert not table.load()
    rig.broker.kernel.scheduled.delayed.open()
    rig.start()


@pytest.mark.parametrize("content", [DAMAGED, b"", None])
@pytest.mark.parametrize("pending", [0, 1, 7])
def test_what_was_delivered_is_not_repeated_and_the_rest_comes(
    rig: Rig, pending: int, content: bytes | None
) -> None:
    rig.start()
    for number in range(20):
        rig.delay(TEN_SECONDS, b"%d" % number)
        rig.wait(1)
    rig.delay(MINUTE, b"later")
    rig.wait(10)
    for number in range(pending):
        rig.delay(TEN_SECONDS, b"pending %d" % number)
    restart_without_table(rig, content)
    assert rig.broker.kernel.scheduled.delayed.offset(TEN_SECONDS) == 20
    rig.wait(60)
    expected = [b"%d" % number for number in range(20)]
    expected += [b"pending %d" % number for number in range(pending)]
    assert rig.bodies() == [*expected, b"later"]
    kept = rig.root / "rockhopper/quarantine/config/delayOffset.json"
    assert (kept.read_bytes() if kept.exists() else None) == (
        content if content == DAMAGED else None
    )


def test_messages_that_became_due_while_nobody_ran_are_delivered(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS, b"delivered")
    rig.wait(10)
    for number in range(5):
        rig.delay(TEN_SECONDS, b"%d" % number)
    rig.broker.kernel.scheduled.delayed.stop()
    rig.clock.advance(3_600_000)
    restart_without_table(rig, DAMAGED)
    rig.wait(1)
    assert rig.bodies() == [b"delivered", *(b"%d" % number for number in range(5))]


def test_messages_of_deleted_topics_are_stepped_over(rig: Rig) -> None:
    rig.start()
    rig.delay(TEN_SECONDS, b"first")
    for _ in range(5):
        rig.delay(TEN_SECONDS, b"gone", real="deleted")
    rig.wait(10)
    restart_without_table(rig, DAMAGED)
    rig.wait(10)
    assert rig.bodies() == [b"first"]
