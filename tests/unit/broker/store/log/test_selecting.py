"""A test of properties is asked once for each combination of values, and chooses sound records."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rockhopper.broker.store.log import fast_encoding, selecting
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.store.record_head import topic_field
from tests.support.records import encode_message

START = 1000
FIELD = topic_field("orders")
Select = Callable[..., tuple[int, int, bytes] | None]


@pytest.fixture(params=["fastest", "python"])
def select(request: pytest.FixtureRequest) -> Select:
    """Give the twins."""
    module: Any = fast_encoding if request.param == "fastest" else selecting
    chosen: Select = module.select_sound
    return chosen


def records(*properties: str) -> list[bytes]:
    """Records at START and behind, with these properties, of messages 40 and up."""
    made: list[bytes] = []
    for number, text in enumerate(properties):
        made.append(
            encode_message(
                topic="orders",
                body=b"hello",
                properties=text,
                queue_id=3,
                queue_offset=40 + number,
                commit_log_offset=START + sum(map(len, made)),
                store_host=bytes(8),
            )
        )
    return made


class Asked:
    """A test that notes what it was asked, and has an answer for each combination of values."""

    def __init__(self, names: Sequence[str], answer: Callable[[Mapping[str, str]], bool | None]):
        self.names = names
        self.keys: list[dict[str, str]] = []
        self._answer = answer
        self._verdicts: dict[bytes, bool] = {}

    @property
    def test(self) -> selecting.Test:
        return tuple(name.encode() for name in self.names), self._verdicts, self._judge

    def _judge(self, key: bytes) -> bool | None:
        values = selecting.values_in(key, self.names)
        self.keys.append(values)
        verdict = self._answer(values)
        if verdict is not None:
            self._verdicts[key] = verdict
        return verdict


def run(
    select: Select,
    given: list[bytes],
    asked: Asked,
    data: bytes | None = None,
    limits: tuple[int, int] = (32, 1 << 20),
    unchecked_from: int = 1 << 40,
) -> tuple[int, list[int]] | None:
    """How many were looked at, and which were chosen."""
    position, units = START, b""
    for record in given:
        units += CONSUME_QUEUE_UNIT.pack(position, len(record), 0)
        position += len(record)
    data = b"".join(given) if data is None else data
    stretch = data, START, START + len(data)
    owner = FIELD, 3, 40
    selected = select(owner, units, *limits, stretch, unchecked_from, asked.test)
    if selected is None:
        return None
    scanned, count, found = selected
    chosen = [number for number, record in enumerate(given) if record in found]
    assert b"".join(given[number] for number in chosen) == found
    assert len(chosen) == count
    return scanned, chosen


def test_each_combination_of_values_is_judged_once(select: Select) -> None:
    given = records("a\x01x\x02n\x011", "n\x012\x02a\x01y", "a\x01x\x02n\x013", "a\x01x", "b\x01x")
    asked = Asked(["a"], lambda values: values.get("a") == "x")
    assert run(select, given, asked) == (5, [0, 2, 3])
    assert asked.keys == [{"a": "x"}, {"a": "y"}, {}]
    assert run(select, given, asked) == (5, [0, 2, 3])
    assert len(asked.keys) == 3


@pytest.mark.parametrize(
    ("properties", "values"),
    [
        ("a\x01first\x02a\x01last", {"a": "last"}),
        ("a\x01one\x01two", {"a": "one\x01two"}),
        ("a\x01\x02b\x01", {}),
        ("\x01x\x02a", {}),
        ("aa\x01x\x02A\x01x", {}),
        ("a\x01主题\x02b\x01\xff", {"a": "主题", "b": "\xff"}),
        ("", {}),
    ],
)
def test_values_are_read_as_properties_are(
    select: Select, properties: str, values: dict[str, str]
) -> None:
    asked = Asked(["a", "b"], lambda _: True)
    run(select, records(properties), asked)
    assert asked.keys == [values]


def test_an_answer_is_full_behind_its_first_message(select: Select) -> None:
    given = records("a\x01x", "a\x01y", "a\x01x", "a\x01x")
    wanted = Asked(["a"], lambda values: values["a"] == "x")
    assert run(select, given, wanted, limits=(2, 1 << 20)) == (3, [0, 2])
    assert run(select, given, wanted, limits=(32, 2 * len(given[0]))) == (3, [0, 2])
    assert run(select, given, wanted, limits=(0, 0)) == (1, [0])
    assert run(select, given, Asked(["a"], lambda _: False), limits=(1, 1)) == (4, [])


def test_it_ends_in_front_of_what_cannot_be_judged_now(select: Select) -> None:
    answers = iter([True, None])
    asked = Asked(["a"], lambda _: next(answers))
    assert run(select, records("a\x01x", "a\x01x", "a\x01y", "a\x01x"), asked) == (2, [0, 1])


def test_a_record_that_is_not_sound_is_for_others(select: Select) -> None:
    given = records("a\x01x", "a\x01x", "a\x01y")
    data = bytearray(b"".join(given))
    data[len(given[0]) + 20 + 7] ^= 1  # its queue offset
    everything = Asked(["a"], lambda _: True)
    assert run(select, given, everything, bytes(data)) is None
    # What stands there is another message, or none.
    assert run(select, given, everything, b"".join(given)[:-1]) is None
    assert run(select, given, everything, b"".join(given)[:-1], (2, 1 << 20)) == (2, [0, 1])


def test_bodies_of_chosen_messages_alone_are_compared_with_their_crc(select: Select) -> None:
    given = records("a\x01x", "a\x01y", "a\x01x")
    data = b"".join(given).replace(b"hello", b"jello")
    nobody = Asked(["a"], lambda _: False)
    assert run(select, given, nobody, data) == (3, [])
    everybody = Asked(["a"], lambda _: True)
    assert run(select, given, everybody, data) is None


def test_values_longer_than_a_key_are_for_others(select: Select) -> None:
    asked = Asked(["a"], lambda _: True)
    largest = selecting.KEY_SIZE_BYTES_MAX - 2
    assert run(select, records("a\x01" + "x" * largest), asked) == (1, [0])
    assert run(select, records("a\x01" + "x" * (largest + 1)), asked) is None


def test_what_the_judge_raises_is_raised(select: Select) -> None:
    def fail(_: object) -> bool:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run(select, records("a\x01x"), Asked(["a"], fail))
