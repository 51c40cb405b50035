"""Whatever a client asks, it gets an answer, and the broker does not trip over the request."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from rockhopper.broker.processor_table import build_table
from rockhopper.protocol.codes import RequestCode
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

SEND_AND_PULL = {10, 310, 320, 11, 361}

# A value that makes sense for every field there is; each example spoils a few of them.
SENSIBLE = {
    "attributes": "+message.type=FIFO",
    "beginTimestamp": "0",
    "boundaryType": "UPPER",
    "cleanOffset": "true",
    "clientID": "c1",
    "commitOffset": "1",
    "consumerGroup": "billing",
    "dataVersion": '{"counter":1}',
    "defaultTopic": "TBW102",
    "delayLevel": "0",
    "endTimestamp": str(2**60),
    "extraInfo": "0 1 60000 0 0 broker-a 0 0",
    "exp": "a",
    "group": "billing",
    "groupName": "billing",
    "groupSeq": "0",
    "initMode": "0",
    "invisibleTime": "1000",
    "key": "k",
    "maxMsgNums": "8",
    "maxNum": "32",
    "maxReconsumeTimes": "16",
    "maxTopicNum": "10",
    "offset": "0",
    "perm": "6",
    "producerGroup": "senders",
    "queueId": "0",
    "readQueueNums": "4",
    "setZeroIfNotFound": "true",
    "statsKey": "orders",
    "statsName": "TOPIC_PUT_NUMS",
    "timestamp": "5",
    "topic": "orders",
    "topicFilterType": "SINGLE_TAG",
    "topicList": "orders;bills",
    "topicSeq": "0",
    "writeQueueNums": "4",
}
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "2147483647", "2147483648", str(2**62), str(2**70), "true", "NaN"]
    ),
    st.sampled_from(["orders", "billing", "%RETRY%billing", "../x", "a/b", "a@b", "SINGLE_TAG"]),
    st.sampled_from(["+message.type=FIFO", "+a=b,,-c", "{", "[]", '{"counter":1}', "a;b;;c"]),
    st.text(max_size=20),
    st.just("x" * 10_000),
)
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "clientID",
                    "clientId",
                    "consumerDataSet",
                    "consumerGroup",
                    "groupConfigList",
                    "groupName",
                    "heartbeatFingerprint",
                    "mqSet",
                    "producerDataSet",
                    "queueId",
                    "subscriptionData",
                    "subscriptionDataSet",
                    "topic",
                    "topicConfigList",
                    "topicName",
                    "withoutSub",
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=15,
)


BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=50),
    JSON_VALUES.map(lambda value: json.dumps(value).encode()),
)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, loop: asyncio.AbstractEventLoop
) -> Iterator[ServedBroker]:
    root: Path = tmp_path_factory.mktemp("store")

    async def make() -> ServedBroker:
        served = ServedBroker(root, Clock(), {})
        served.create_topic("orders")
        served.put("orders", properties="KEYS\x01k\x02")
        return served

    served = loop.run_until_complete(make())
    yield served
    loop.run_until_complete(served.close())


@settings(
    max_examples=5 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_request_is_answered(
    data: st.DataObject, broker: ServedBroker, loop: asyncio.AbstractEventLoop
) -> None:
    known = {int(code) for code in RequestCode}
    codes = sorted(code for code in build_table(broker) if code in known - SEND_AND_PULL)
    code = RequestCode(data.draw(st.sampled_from(codes)))
    spoilt = st.dictionaries(st.sampled_from(sorted(SENSIBLE)), VALUES, max_size=3)
    absent = data.draw(st.sets(st.sampled_from(sorted(SENSIBLE)), max_size=2))
    ext = {n: v for n, v in (SENSIBLE | data.draw(spoilt)).items() if n not in absent}
    # A pop may wait for as long as it says.
    ext["pollTime"] = "0"
    body = data.draw(BODIES)
    with capture_logs() as logs:
        answer = loop.run_until_complete(broker.ask(code, ext, body, peer=Peer()))
    assert answer.is_response
    assert answer.code == 0 or answer.remark
    assert len(answer.remark or "") < 1000
    assert [entry for entry in logs if entry["event"] == "request failed"] == []
