"""A message that shall come again after so many seconds, and brokers that know levels only."""

from typing import Any

import pytest

from rockhopper.client import Consumer, RetryLater
from rockhopper.client.consuming.redelivery import find_retry_later
from rockhopper.protocol.command import Command
from tests.support.group_broker import GroupBroker


async def test_where_a_time_is_refused_the_next_level_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with GroupBroker(queues=4) as broker:
        await broker.append(0, b"x", b"y", b"z")
        broker.on(310, lambda request: Command(13, remark="timer message illegal"))
        async with Consumer("billing", "orders", nameserver=broker.address) as consumer:
            async for message in consumer:
                delay_s = {b"x": 0, b"y": 30.5, b"z": 1e6}[message.body]
                await consumer.retry_later(message, delay_s=delay_s)
                if message.body == b"z":
                    break
        levels = [(request.ext or {})["delayLevel"] for request in broker.requests_of(36)]
        assert levels == ["1", "5", "18"]
        assert "sent back with a delay of level 5 instead" in caplog.text
        assert broker.committed["billing", 0] == 3


@pytest.mark.parametrize(("level", "times"), [(0, "1"), (-1, "17")])
async def test_a_message_whose_offset_has_another_by_now_is_sent_back_as_a_copy(
    level: int, times: str
) -> None:
    async with GroupBroker(queues=4) as broker:
        await broker.append(0, b"held", tag="a\x01b")
        said = "look message by offset failed, 0: the offset now holds another message"
        broker.on(36, lambda request: Command(1, remark=said))
        broker.on(310, lambda request: Command(0, ext={"queueId": "0", "queueOffset": "0"}))
        async with Consumer("billing", "orders", nameserver=broker.address) as consumer:
            async for message in consumer:
                await consumer.retry_later(message, level)
                break
            asked = broker.requests_of(36)[0].ext or {}
            assert asked["originMsgId"] == message.message_id
            assert asked["storeTimestamp"] == str(message.store_time_ms)
        (copy,) = broker.requests_of(310)
        assert copy.body == b"held"
        ext = copy.ext or {}
        assert (ext["b"], ext["j"]) == ("%RETRY%billing", times)
        assert "TAGS\x01a\x01b\x02" in ext["i"]
        assert broker.committed["billing", 0] == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delay_s": 5, "delay_level": 3}, "exclude each other"),
        ({"delay_level": -2}, "delay_level is -2"),
        ({"delay_level": 19}, "delay_level is 19.*delay_s accepts any delay"),
        ({"delay_s": -1}, "0 or above"),
        ({"delay_s": float("nan")}, "0 or above"),
        ({"delay_s": float("inf")}, "0 or above"),
    ],
)
def test_a_delay_that_is_none_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RetryLater(**options)


def test_a_retry_later_is_found_in_the_group_that_a_task_group_raises() -> None:
    later = RetryLater(delay_s=2)
    nested = ExceptionGroup("outer", [ValueError(), ExceptionGroup("inner", [later])])
    assert find_retry_later(later) is later
    assert find_retry_later(nested) is later
    assert find_retry_later(BaseExceptionGroup("panic", [SystemExit(), later])) is later
    assert find_retry_later(ExceptionGroup("none", [ValueError()])) is None


async def test_a_delay_beyond_what_timers_take_is_the_longest_timer_and_not_a_level() -> None:
    async with GroupBroker(queues=4) as broker:
        await broker.append(0, b"x")

        def refuse(request: Command) -> Command:
            if "TIMER_DELAY_MS\x01864000000" in (request.ext or {})["i"]:
                return Command(13, remark="timer message illegal, too long")
            return Command(0, ext={"msgId": "A", "queueId": "0", "queueOffset": "0"})

        broker.on(310, refuse)
        async with Consumer("billing", "orders", nameserver=broker.address) as consumer:
            async for message in consumer:
                await consumer.retry_later(message, delay_s=10 * 24 * 3600)
                break
        assert broker.requests_of(36) == []
        properties = (broker.requests_of(310)[-1].ext or {})["i"]
        assert "TIMER_DELAY_MS\x01259200000" in properties
