"""What a pop answers: its records, and the texts that say where they come from."""

from rockhopper.broker.features.pop.extra_info import NORMAL, RETRY_V1
from rockhopper.broker.features.pop.reading import PopAnswer, PopRequest, split_records
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.subscription import Subscription
from tests.support.records import encode_message


def record(queue_offset: int, topic: str = "%RETRY%g_orders") -> bytes:
    return encode_message(
        topic=topic,
        body=b"%d" % queue_offset,
        properties="TAGS\x01a\x02",
        queue_id=0,
        queue_offset=queue_offset,
        commit_log_offset=1000 * queue_offset,
        store_host=bytes(8),
    )


def found(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, record(offset)) for offset in offsets]


def test_records_are_told_apart_by_their_sizes() -> None:
    assert list(split_records(b"".join(data for _, data in found(3, 4, 9)))) == found(3, 4, 9)
    assert list(split_records(b"")) == []


def test_an_answer_names_each_queue_and_its_offsets() -> None:
    answer = PopAnswer("orders", 1000, 60_000, 3)
    answer.append_messages(0, 3, found(3, 4), flag=NORMAL, broker_name="b")
    answer.append_messages(2, 9, found(9), flag=RETRY_V1, broker_name="b")
    answer.rest = 7
    assert answer.count == 3
    assert answer.ext() == {
        "popTime": "1000",
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "7",
        "startOffsetInfo": "0 0 3;1 2 9",
        "msgOffsetInfo": "0 0 3,4;1 2 9",
    }


def test_records_of_the_topic_go_out_as_they_are() -> None:
    answer = PopAnswer("orders", 1000, 60_000, 3)
    answer.append_messages(0, 3, found(3, 4), flag=NORMAL, broker_name="b")
    assert answer.body() == record(3) + record(4)


def test_records_of_a_retry_topic_get_their_topic_back_and_say_where_they_wait() -> None:
    answer = PopAnswer("orders", 1000, 60_000, 3)
    answer.append_messages(2, 8, found(9), flag=RETRY_V1, broker_name="broker-a")
    (message,) = decode_messages(answer.body())
    assert message.topic == "orders"
    assert message.body == b"9"
    assert message.properties == {"TAGS": "a", "POP_CK": "8 1000 60000 3 1 broker-a 2 9"}


def test_a_record_without_room_for_its_receipt_is_left_out() -> None:
    full = encode_message(topic="%RETRY%g_orders", properties="my\x01" + "x" * 32_763 + "\x02")
    answer = PopAnswer("orders", 1000, 60_000, 3)
    answer.append_messages(2, 8, [(8, full), *found(9)], flag=RETRY_V1, broker_name="b")
    assert [message.queue_offset for message in decode_messages(answer.body())] == [9]
    assert (answer.count, answer.ext()["msgOffsetInfo"]) == (1, "1 2 9")
    alone = PopAnswer("orders", 1000, 60_000, 3)
    alone.append_messages(2, 8, [(8, full)], flag=RETRY_V1, broker_name="b")
    assert (alone.count, alone.found) == (0, [])


def test_an_empty_answer_names_no_offsets() -> None:
    ext = PopAnswer("orders", 1000, 60_000, 3).ext()
    assert set(ext) == {"popTime", "invisibleTime", "reviveQid", "restNum"}


def test_counts_of_an_orderly_pop_are_told_twice() -> None:
    """By offset, and for old clients the least of a queue of which every message has one."""
    answer = PopAnswer("orders", 1000, 60_000, 999)
    answer.add_order_counts(0, [3, 4], {3: 2, 4: 1})
    answer.add_order_counts(1, [5, 6], {5: 2})
    answer.add_order_counts(2, [7], {})
    assert answer.ext()["orderCountInfo"] == "0 qo0%3 2;0 qo0%4 1;0 0 1;0 qo1%5 2;0 1 0;0 2 0"


def test_pops_are_not_told_apart_by_their_attempt_ids() -> None:
    wanted = PopRequest("pickers", "parcels", -1, 1, 1000, from_newest=False, attempt_id="a")
    assert wanted._replace(attempt_id="b").filter_key == wanted.filter_key
    orderly = wanted._replace(order=True)
    assert orderly._replace(attempt_id="b").filter_key == orderly.filter_key
    assert orderly.filter_key != wanted.filter_key
    assert wanted._replace(queue_id=1).filter_key != wanted.filter_key


def test_pops_are_told_apart_by_expressions_not_by_their_versions() -> None:
    red = Subscription("parcels", "red", version=1)
    wanted = PopRequest("pickers", "parcels", -1, 1, 1000, False, red)
    newer = Subscription("parcels", "red", version=2)
    assert wanted._replace(subscription=newer).filter_key == wanted.filter_key
    blue = Subscription("parcels", "blue", version=1)
    assert wanted._replace(subscription=blue).filter_key != wanted.filter_key
    assert wanted._replace(subscription=None).filter_key != wanted.filter_key
