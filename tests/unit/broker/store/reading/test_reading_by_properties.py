"""get_message with SQL92: which messages a pull gets, how many it looks at, what is never shown."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.broker.store.reading.property_stage import BUDGET_S, SHARE
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import TYPE_SQL92, Subscription
from tests.support.open_stores import Stores, close, messages, put

TOPIC = "TopicA"


def sql(expression: str) -> Subscription:
    return Subscription(TOPIC, expression, TYPE_SQL92)


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        put(store, b"%d" % number, properties=f"n\x01{number}\x02")


def stop_the_clock(store: MessageStore) -> None:
    """Let filters take no time: the budget is full, and stays so."""
    now_s = store.reading.reader.budget.clock()
    store.reading.reader.budget.clock = lambda: now_s


def found(result: GetResult) -> list[bytes]:
    return [message.body for message in decode_messages(result.body)]


@pytest.mark.parametrize("is_old", [False, True])
def test_wanted_messages_are_given_and_all_are_passed(stores: Stores, is_old: bool) -> None:
    store = stores.open()
    fill(store, 10)
    if is_old:
        close(store)
        store = stores.open()
    stop_the_clock(store)
    result = store.reading.get_message(TOPIC, 0, 0, 32, sql("n IN ('2', '3') OR n > 8"))
    assert found(result) == [b"2", b"3", b"9"]
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 10)
    result = store.reading.get_message(TOPIC, 0, 4, 32, sql("n = 1"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 10)
    result = store.reading.get_message(TOPIC, 0, 0, 2, sql("n > 1"))
    assert found(result) == [b"2", b"3"]
    assert result.next_offset == 4
    assert store.reading.reader.tested_count == 10 + 6 + 4


def test_tags_alone_look_into_no_record(stores: Stores) -> None:
    store = stores.open()
    fill(store, 3)
    store.reading.get_message(TOPIC, 0, 0, 32, Subscription(TOPIC, "a || b"))
    store.reading.get_message(TOPIC, 0, 0, 32)
    assert store.reading.reader.tested_count == 0


def test_a_pull_looks_at_800_messages_and_ends_when_its_time_is_up(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 20)
    fill(store, 900)
    now_s = store.reading.reader.budget.clock()
    store.reading.reader.budget.clock = lambda: now_s
    assert store.reading.get_message(TOPIC, 0, 0, 32, sql("n < 0")).next_offset == 800
    with store.reading.reader.budget.pays():
        now_s += 2 * BUDGET_S
    for offset in (0, 100):
        # What was judged once is known, for each expression.
        result = store.reading.get_message(TOPIC, 0, offset, 32, sql(f"n < -{offset + 1}"))
        assert result.status is GetStatus.NO_MATCHED_MESSAGE
        assert result.next_offset == offset + 1
    now_s += 2 * BUDGET_S / SHARE
    assert found(store.reading.get_message(TOPIC, 0, 0, 32, sql("n = 7"))) == [b"7"]
    assert store.reading.get_message(TOPIC, 0, 100, 32, sql("n < 0")).next_offset == 900


# Body, topic, properties length.
@pytest.mark.parametrize("change_at", [89, 97, 102])
def test_a_damaged_old_message_is_never_shown(stores: Stores, change_at: int) -> None:
    store = stores.open()
    for number in range(3):
        put(store, b"body %d" % number, properties=f"KEYS\x01k{number}\x02")
    second = messages(store)[1].commit_log_offset
    close(store)
    path = stores.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[second + change_at] ^= 0x55
    store = stores.open()
    path.write_bytes(bytes(data))
    stop_the_clock(store)
    with capture_logs() as logs:
        result = store.reading.get_message(TOPIC, 0, 0, 32, sql("KEYS IS NOT NULL"))
    assert found(result) == [b"body 0", b"body 2"]
    assert [entry["log_level"] for entry in logs] == ["error"]


def test_an_inner_batch_is_asked_about_as_a_whole(stores: Stores) -> None:
    store = stores.open(batch_topics={"Batches"})
    stop_the_clock(store)
    for number in range(3):
        put(store, b"x", "Batches", properties=f"n\x01{number}\x02INNER_NUM\x011\x02")
    result = store.reading.get_message("Batches", 0, 0, 32, sql("n = 1"))
    assert result.count == 1
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 3)
    result = store.reading.get_message("Batches", 0, 0, 32, sql("n = 7"))
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 3)
