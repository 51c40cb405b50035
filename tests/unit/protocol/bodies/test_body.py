"""JSON bodies: the reference's shapes byte for byte, and the odd ones that clients send."""

import pytest

from rockhopper.protocol import bodies
from rockhopper.protocol.bodies import (
    Body,
    BrokerData,
    CheckClientRequestBody,
    ClusterInfo,
    ConsumerConnection,
    ConsumerData,
    ConsumeStats,
    DataVersion,
    GetBrokerMemberGroupBody,
    GetConsumerListByGroupBody,
    GetConsumerStatusBody,
    GroupList,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerTableInfo,
    QueueData,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from rockhopper.protocol.errors import MalformedBodyError

QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
VERSION = '{"counter":0,"stateVersion":0,"timestamp":1795166829807}'
SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG","subString":"a",'
    '"subVersion":1,"tagsSet":["a"],"topic":"T"}'
)
TOPIC = (
    '{"attributes":{"message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":16,'
    '"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}'
)
TABLE = (
    f'{{"dataVersion":{VERSION},"mappingDataVersion":{VERSION},"topicConfigTable":{{"T":{TOPIC}}},'
    '"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
)
HEARTBEAT = (
    '{"clientID":"127.0.0.1@123#456","consumerDataSet":[{"consumeFromWhere":'
    '"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"cg",'
    '"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],'
    '"expressionType":"TAG","subString":"*","subVersion":1795166829790,"tagsSet":[],"topic":"T"}],'
    '"unitMode":false}],"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"pg"}],'
    '"withoutSub":false}'
)
CONNECTION = '{"clientAddr":"1.1.1.1:222","clientId":"cid","language":"JAVA","version":479}'
CLUSTER = (
    '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
    '"cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["broker-a"]}}'
)

# The shapes that the reference writes.
SHAPES = [
    (HeartbeatData, HEARTBEAT),
    (SubscriptionData, SUBSCRIPTION),
    (ClusterInfo, CLUSTER),
    (TopicList, '{"brokerAddr":"1.2.3.4:10911","topicList":["A"]}'),
    (TopicList, '{"topicList":["A"]}'),
    (GroupList, '{"groupList":["g"]}'),
    (KVTable, '{"table":{"k":"v"}}'),
    (
        TopicStatsTable,
        f'{{"offsetTable":{{{QUEUE}:{{"lastUpdateTimestamp":0,"maxOffset":9,"minOffset":0}}}},'
        '"topicPutTps":0.0}',
    ),
    (
        ConsumeStats,
        f'{{"consumeTps":0.0,"offsetTable":{{{QUEUE}:{{"brokerOffset":5,"consumerOffset":0,'
        '"lastTimestamp":0,"pullOffset":0}}}',
    ),
    (ResetOffsetBody, f'{{"offsetTable":{{{QUEUE}:8}}}}'),
    (
        GetConsumerStatusBody,
        f'{{"consumerTable":{{"cid":{{{QUEUE}:1}}}},"messageQueueTable":{{}}}}',
    ),
    (
        ConsumerConnection,
        f'{{"connectionSet":[{CONNECTION}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        f'"subscriptionTable":{{"T":{SUBSCRIPTION}}}}}',
    ),
    (ProducerConnection, f'{{"connectionSet":[{CONNECTION}]}}'),
    (
        ProducerTableInfo,
        '{"data":{"pg":[{"clientId":"cid","language":"JAVA","lastUpdateTimestamp":5,'
        '"remoteIP":"1.1.1.1","version":479}]}}',
    ),
    (GetConsumerListByGroupBody, '{"consumerIdList":["a","b"]}'),
    (
        LockBatchRequestBody,
        f'{{"clientId":"c","consumerGroup":"g","mqSet":[{QUEUE}],"onlyThisBroker":false}}',
    ),
    (LockBatchResponseBody, f'{{"lockOKMQSet":[{QUEUE}]}}'),
    (TopicConfig, TOPIC),
    (TopicConfigTable, TABLE),
    (DataVersion, VERSION),
    (
        CheckClientRequestBody,
        f'{{"clientId":"c","group":"g","subscriptionData":{SUBSCRIPTION}}}',
    ),
    (RegisterBrokerBody, f'{{"filterServerList":[],"topicConfigSerializeWrapper":{TABLE}}}'),
    (
        GetBrokerMemberGroupBody,
        '{"brokerMemberGroup":{"brokerAddrs":{0:"a"},"brokerName":"b","cluster":"c"}}',
    ),
]


@pytest.mark.parametrize(("cls", "text"), SHAPES, ids=lambda value: getattr(value, "__name__", ""))
def test_writes_what_the_reference_writes(cls: type[Body], text: str) -> None:
    assert cls.decode(text).encode().decode() == text


def test_every_body_class_is_among_the_shapes() -> None:
    classes = {
        value
        for value in vars(bodies).values()
        if isinstance(value, type) and issubclass(value, Body)
    }
    parts = {Body, TopicRouteData, QueueData, BrokerData, ConsumerData, bodies.ProducerData}
    parts |= {bodies.Connection, bodies.ProducerInfo, bodies.TopicOffset, bodies.OffsetWrapper}
    parts |= {bodies.BrokerMemberGroup, bodies.MarkedConsumerConnection, bodies.DifferentMember}
    assert classes - parts == {cls for cls, _ in SHAPES}


@pytest.mark.parametrize(("cls", "text"), SHAPES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("body", [b"", b"garbage", b"[]", b"7", b'"x"', b"null", b"{" * 5000])
def test_garbage_is_refused(cls: type[Body], text: str, body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        cls.decode(body)
