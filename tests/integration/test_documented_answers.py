"""docs/compatibility.md and its like: a broker answers with the codes that they name."""

import pytest

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.prose import ROOT, page
from tests.support.wire import WireClient

SEND = dict.fromkeys("efgh", "0") | {"a": "billing", "b": "orders", "c": "TBW102", "d": "4"}
QUEUE = {"topic": "orders", "group": "billing", "timestamp": "-1", "isForce": "true"}
BY_KEY = {"topic": "orders", "key": "k", "beginTimestamp": "0", "endTimestamp": "9999999999999"}
COMPATIBILITY, DELAYS, GROUPS = (
    f"docs/{name}.md" for name in ("compatibility", "delay-and-timers", "consumer-groups")
)
NOT_LIVE = "25 with a key that is not live, such as `listenPort` or `timerMaxDelaySec`"
TOO_LATE = "(3 days), or one that is not a number, is refused with code 13;"
NOT_SERVED = "The broker answers them with code 3, `REQUEST_CODE_NOT_SUPPORTED`."
BY_ITSELF = "306 and 316 are answered with success"
SAID: list[tuple[str, str, RequestCode, dict[str, str], bytes, int]] = [
    (
        COMPATIBILITY,
        "| 222 for a queue that does not exist | answers 0 | is refused (29) |",
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        QUEUE | {"queueId": "77", "offset": "0"},
        b"",
        29,
    ),
    (COMPATIBILITY, NOT_LIVE, RequestCode.UPDATE_BROKER_CONFIG, {}, b"listenPort=1\n", 1),
    (COMPATIBILITY, NOT_LIVE, RequestCode.UPDATE_BROKER_CONFIG, {}, b"timerMaxDelaySec=5\n", 1),
    (
        COMPATIBILITY,
        "| 12 with a negative `maxNum` | an exception's text (1) | finds nothing (22) |",
        RequestCode.QUERY_MESSAGE,
        BY_KEY | {"maxNum": "-1"},
        b"",
        22,
    ),
    (
        COMPATIBILITY,
        "`TOPIC_PUT_LATENCY` | counts by queue and topic (`0@orders`) | is answered with 1",
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_LATENCY", "statsKey": "0@orders"},
        b"",
        1,
    ),
    (
        COMPATIBILITY,
        "is not a number or is above 32,767 | an exception's text (1) | is refused (13)",
        RequestCode.SEND_MESSAGE_V2,
        SEND | {"i": "INNER_NUM\x01many\x02", "f": "32768"},
        b"x",
        13,
    ),
    (
        DELAYS,
        TOO_LATE,
        RequestCode.SEND_MESSAGE_V2,
        SEND | {"i": "TIMER_DELAY_SEC\x01260000\x02"},
        b"x",
        13,
    ),
    (
        DELAYS,
        TOO_LATE,
        RequestCode.SEND_MESSAGE_V2,
        SEND | {"i": "TIMER_DELAY_SEC\x01soon\x02"},
        b"x",
        13,
    ),
    (GROUPS, BY_ITSELF, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}, b"", 0),
    (GROUPS, BY_ITSELF, RequestCode.CLEAN_UNUSED_TOPIC, {}, b"", 0),
    (
        GROUPS,
        "308 leaves the groups in `filterGroups` out of the answer",
        RequestCode.QUERY_CORRECTION_OFFSET,
        {"topic": "orders", "filterGroups": "billing"},
        b"",
        0,
    ),
    (COMPATIBILITY, NOT_SERVED, RequestCode.CONTROLLER_ELECT_MASTER, {}, b"", 3),
    (COMPATIBILITY, NOT_SERVED, RequestCode.POP_ROLLBACK, {}, b"", 3),
]


@pytest.mark.parametrize(
    ("name", "sentence", "code", "fields", "body", "answer"),
    SAID,
)
async def test_an_answer_is_the_one_that_the_page_names(
    name: str, sentence: str, code: RequestCode, fields: dict[str, str], body: bytes, answer: int
) -> None:
    assert sentence in " ".join(page(ROOT / name).text.split())
    async with Broker.temporary() as broker, WireClient(broker.address) as client:
        sent = await client.ask(RequestCode.SEND_MESSAGE_V2, SEND | {"i": ""}, b"an order")
        assert sent.code == ResponseCode.SUCCESS
        group = b'{"groupName": "billing"}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group)
        assert (await client.ask(code, fields, body)).code == answer


async def test_a_recall_is_refused_as_the_page_says() -> None:
    text = " ".join(page(ROOT / "docs/delay-and-timers.md").text.split())
    assert "604 that it was delivered or recalled before" in text
    assert "false refuses 370 with code 16" in text
    delayed = SEND | {"i": "TIMER_DELAY_SEC\x01600\x02"}
    async with Broker.temporary() as broker, WireClient(broker.address) as client:
        sent = await client.ask(RequestCode.SEND_MESSAGE_V2, delayed, b"later")
        handle = (sent.ext or {})["recallHandle"]
        asked = {"producerGroup": "p", "topic": "orders", "recallHandle": handle}
        for answer in (0, 604):
            assert (await client.ask(RequestCode.RECALL_MESSAGE, asked)).code == answer
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"recallMessageEnable=false\n")
        assert (await client.ask(RequestCode.RECALL_MESSAGE, asked)).code == 16
