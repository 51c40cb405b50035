"""PropertyStage: what it reads of a record, and when it stops."""

from collections.abc import Mapping

import pytest

from rockhopper.broker.store.reading.property_stage import BUDGET_S, FilterBudget, PropertyStage
from tests.support.records import encode_message

START = 1000


class Log:
    """Records of a commit log that begins at START; counts the bytes that are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        part = self.data[start - START : end - START] if start >= START else b""
        self.read_bytes += len(part)
        return part if len(part) == end - start else b""


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def stage(data: bytes, clock: Clock | None = None) -> tuple[PropertyStage, Log]:
    log = Log(data)
    return PropertyStage(log, FilterBudget(clock or Clock())), log  # type: ignore[arg-type]


def seen(data: bytes, size: int | None = None) -> list[dict[str, str]]:
    """The properties that a test is asked about."""
    asked: list[dict[str, str]] = []

    def test(properties: Mapping[str, str]) -> bool:
        asked.append(dict(properties))
        return False

    is_rejected = stage(data)[0].rejects(START, size or len(data), test)
    assert is_rejected == bool(asked)
    return asked


@pytest.mark.parametrize("born_host", [bytes(8), bytes(20)])
@pytest.mark.parametrize("store_host", [bytes(8), bytes(20)])
@pytest.mark.parametrize("topic", ["T", "long" * 40])
@pytest.mark.parametrize("body", [b"", b"x" * 100, b"x" * 50_000])
def test_the_properties_of_all_kinds_of_records(
    born_host: bytes, store_host: bytes, topic: str, body: bytes
) -> None:
    record = encode_message(
        topic=topic,
        body=body,
        properties={"a": "1", "b": "2"},
        born_host=born_host,
        store_host=store_host,
    )
    assert seen(record) == [{"a": "1", "b": "2"}]


def test_a_record_without_properties_has_none() -> None:
    assert seen(encode_message(topic="T", body=b"x")) == [{}]


def test_a_long_body_is_not_read() -> None:
    record = encode_message(topic="T", body=b"x" * 1_000_000, properties={"a": "1"})
    looked_at, log = stage(record)
    assert looked_at.rejects(START, len(record), lambda _: False)
    assert not looked_at.rejects(START, len(record), lambda _: True)
    assert log.read_bytes < 500


@pytest.mark.parametrize("body", [b"x" * 100, b"x" * 50_000])
def test_what_is_gone_or_does_not_add_up_is_left_to_who_verifies(body: bytes) -> None:
    record = encode_message(topic="T", body=body, properties={"a": "1"})
    assert seen(record[:-1], len(record)) == [], "its end is not there"
    for cut in (0, 50, 95, len(record) - 1):
        assert seen(record[:cut], max(cut, 1)) == []
    for position in (4, 36, 84, 88 + len(body), len(record) - 5):
        for value in (0, 0x7F, 0x80, 0xFF):
            spoiled = bytearray(record)
            spoiled[position] = value
            seen(bytes(spoiled))


def test_a_read_stops_when_the_budget_is_used_up_but_never_at_once() -> None:
    clock = Clock()
    looked_at, _ = stage(b"", clock)
    looked_at.start_read()
    assert not any(looked_at.is_spent() for _ in range(100))
    clock.now_s += BUDGET_S
    assert looked_at.is_spent()
    looked_at.finish_read()
    looked_at.start_read()
    assert [looked_at.is_spent() for _ in range(3)] == [False, True, True]
    looked_at.finish_read()


def test_a_read_between_others_looks_at_nothing_that_they_have_to_wait_for() -> None:
    clock = Clock()
    looked_at, _ = stage(b"", clock)
    looked_at.begin_between()
    assert not looked_at.is_spent()
    clock.now_s += BUDGET_S
    looked_at.finish_read()
    looked_at.begin_between()
    assert looked_at.is_spent()
    looked_at.finish_read()
