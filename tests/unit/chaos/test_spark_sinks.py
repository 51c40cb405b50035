"""The judge of copies by Spark: what is lost, twice, elsewhere or out of order is said."""

import pytest

from tests.chaos.spark_sinks import Stored, judge
from tests.support.copying_query import LETTERS, SECOND, SOURCE, TARGET

SOURCE_QUEUE = (SOURCE, "broker-0", 1)
SENT = [Stored(SOURCE_QUEUE, offset, f"{offset + 50:08d}") for offset in range(4)]
QUEUES = {topic: (topic, "broker-1", 0) for topic in (TARGET, SECOND, LETTERS)}
TOPICS = (LETTERS, SECOND, TARGET, TARGET)
COPIED = [
    Stored(QUEUES[topic], number, sent.copied)
    for number, (topic, sent) in enumerate(zip(TOPICS, SENT, strict=True))
]
ACKNOWLEDGED = {each.body for each in SENT}


def judged(found: list[Stored]) -> str:
    return "; ".join(judge(SENT, found, ACKNOWLEDGED, by_columns=True)[0])


def test_a_whole_copy_is_good() -> None:
    assert judge(SENT, COPIED, ACKNOWLEDGED, by_columns=True) == ([], 0, 0)


def test_without_columns_all_goes_to_one_topic() -> None:
    found = [Stored(QUEUES[TARGET], 9 - each.offset, each.copied) for each in SENT]
    assert judge(SENT, found, ACKNOWLEDGED, by_columns=False) == ([], 0, 0)


def test_what_was_acknowledged_and_is_nowhere_is_lost() -> None:
    complaints, lost, _ = judge(SENT, COPIED, {*ACKNOWLEDGED, "00000099"}, by_columns=True)
    assert (complaints, lost) == (["1 acknowledged messages are not in the source: 00000099"], 1)


@pytest.mark.parametrize("missing", range(4))
def test_what_was_not_copied_is_lost(missing: int) -> None:
    found = COPIED[:missing] + COPIED[missing + 1 :]
    assert judged(found).startswith("1 were not copied")


def test_what_is_there_twice_is_said() -> None:
    again = COPIED[1]._replace(offset=77)
    assert judged([*COPIED, again]).startswith("1 are there twice")


def test_what_is_in_another_topic_is_both_lost_and_astray() -> None:
    astray = COPIED[2]._replace(queue=QUEUES[SECOND])
    found = judged([*COPIED[:2], astray, COPIED[3]])
    assert "1 were not copied" in found
    assert "1 are where they do not belong" in found


def test_a_key_out_of_order_is_said() -> None:
    # Number 52 has no key: 4 divides it. So two with one, of the same source queue.
    sent = [Stored(SOURCE_QUEUE, offset, f"{number:08d}") for offset, number in enumerate((53, 55))]
    found = [Stored(QUEUES[TARGET], 1 - each.offset, each.copied) for each in sent]
    complaints, _, _ = judge(sent, found, set(), by_columns=True)
    assert len(complaints) == 1
    assert "lies behind" in complaints[0]
