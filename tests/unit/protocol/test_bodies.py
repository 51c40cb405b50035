"""JSON bodies: the reference's shapes byte for byte, and the odd ones that clients send."""

import zlib

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
    parse_topic_text,
    topic_text,
)
from rockhopper.protocol.errors import MalformedBodyError, SubscriptionError
from rockhopper.protocol.fastjson import MessageQueueKey
from rockhopper.protocol.subscription import Subscription

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
    parts |= {bodies.BrokerMemberGroup}
    assert classes - parts == {cls for cls, _ in SHAPES}


@pytest.mark.parametrize(("cls", "text"), SHAPES, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("body", [b"", b"garbage", b"[]", b"7", b'"x"', b"null", b"{" * 5000])
def test_garbage_is_refused(cls: type[Body], text: str, body: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        cls.decode(body)


ROUTE = TopicRouteData(
    [QueueData("broker-a", 8, 8)],
    [BrokerData("broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}, "C", None, False)],
)


def test_route_is_compact_and_holds_no_true_false_or_null() -> None:
    assert ROUTE.encode().decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},'
        '"brokerName":"broker-a","cluster":"C"}],"filterServerTable":{},"queueDatas":'
        '[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
        '"writeQueueNums":8}]}'
    )


def test_route_for_old_clients_has_bare_keys() -> None:
    assert '"brokerAddrs":{0:"127.0.0.1:10911",1:' in ROUTE.encode(raw_keys=True).decode()


def test_route_of_the_reference_is_read_in_both_forms() -> None:
    for raw_keys in (False, True):
        route = TopicRouteData.decode(ROUTE.encode(raw_keys=raw_keys))
        assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
        assert route.queue_datas == ROUTE.queue_datas
    text = '{"brokerDatas":null,"queueDatas":[],"orderTopicConf":"a:4","unknown":[1]}'
    assert TopicRouteData.decode(text).order_topic_conf == "a:4"


def test_optional_parts_of_a_route_are_written_when_set() -> None:
    route = TopicRouteData(
        [QueueData("b")], [BrokerData("b", {0: "a"}, "C", "zone")], order_topic_conf="b:4"
    )
    text = route.encode().decode()
    assert '"zoneName":"zone"' in text
    assert '"orderTopicConf":"b:4"' in text


def heartbeat(consumer: str) -> ConsumerData:
    (data,) = HeartbeatData.decode(
        f'{{"clientID":"c","consumerDataSet":[{consumer}]}}'
    ).consumer_data_set
    return data


def test_heartbeat_of_go_has_hashes_as_text_and_nanoseconds() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"topic":"T",'
        '"subString":"TagA","codeSet":["2598919"],"tagsSet":["TagA"],'
        '"subVersion":1795166829790123456,"classFilterMode":false,"expressionType":"TAG"}]}'
    )
    (subscription,) = data.subscription_data_set
    assert subscription.sub_version == 1795166829790123456
    assert subscription.subscription().tag_hashes == {2598919}


def test_heartbeat_of_cpp_has_ordinals_and_zeros_for_hashes() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":1,"messageModel":"1","consumeFromWhere":0,'
        '"subscriptionDataSet":[{"topic":"T","subString":"TagA||TagB","codeSet":[0,0],'
        '"tagsSet":["TagA","TagB"],"subVersion":"7"}]}'
    )
    assert data.consume_type == "CONSUME_PASSIVELY"
    assert data.message_model == "CLUSTERING"
    assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    (subscription,) = data.subscription_data_set
    assert subscription.code_set == [2598919, 2598920]
    assert subscription.sub_version == 7


def test_heartbeat_of_javascript_leaves_out_types_and_holds_nulls() -> None:
    data = heartbeat(
        '{"groupName":"g","consumeType":null,"subscriptionDataSet":'
        '[{"topic":"T","subString":"*","expressionType":null,"tagsSet":null}]}'
    )
    assert data.consume_type == "CONSUME_PASSIVELY"
    assert data.subscription_data_set[0].subscription() == Subscription("T")


def test_heartbeat_without_subscriptions() -> None:
    assert heartbeat('{"groupName":"g","subscriptionDataSet":null}').subscription_data_set == []


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"clientID":7}',
        '{"clientID":"c","consumerDataSet":7}',
        '{"clientID":"c","consumerDataSet":[7]}',
        '{"clientID":"c","consumerDataSet":[{}]}',
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":9}]}',
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
        '{"clientID":"c","producerDataSet":["pg"]}',
        '{"clientID":"c","heartbeatFingerprint":"' + "9" * 5000 + '"}',
    ],
)
def test_heartbeat_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError):
        HeartbeatData.decode(text)


def test_ordinal_of_no_enumeration_stays_what_it_is() -> None:
    assert heartbeat('{"groupName":"g","consumeType":"' + "9" * 5000 + '"}').consume_type[0] == "9"


def test_subscription_that_is_no_filter_is_told_when_it_is_used() -> None:
    data = heartbeat('{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"||"}]}')
    with pytest.raises(SubscriptionError):
        data.subscription_data_set[0].subscription()


def test_subscription_travels_with_tags_and_hashes() -> None:
    data = SubscriptionData.of(Subscription("T", "b||a", version=5))
    assert data == SubscriptionData("T", "b||a", "TAG", 5)
    assert (data.tags_set, data.code_set) == (["a", "b"], [97, 98])


def test_queue_tables_are_read_in_both_forms() -> None:
    quoted = QUEUE.replace('"', '\\"')
    table = TopicStatsTable.decode(f'{{"offsetTable":{{"{quoted}":{{"maxOffset":9}}}}}}')
    assert table.offset_table[MessageQueueKey("T", "broker-a", 0)].max_offset == 9


def test_topic_without_its_name_takes_it_from_the_table() -> None:
    table = TopicConfigTable.decode('{"topicConfigTable":{"T":{"perm":4,"attributes":null}}}')
    assert table.topic_config_table["T"] == TopicConfig("T", perm=4)


REGISTRATION = RegisterBrokerBody(
    TopicConfigTable(
        {
            "T": TopicConfig("T", 8, 8),
            "U": TopicConfig("U", attributes={"message.type": "FIFO"}),
        },
        DataVersion(3, 0, 5),
        topic_queue_mapping_info_map={"U": {"topic": "U", "totalQueues": 4}},
    ),
    ["filter:1"],
)


def test_compressed_registration_reads_back() -> None:
    data = REGISTRATION.encode_compressed()
    assert RegisterBrokerBody.decode_registration(data, compressed=True) == REGISTRATION


def test_plain_registration_reads_back() -> None:
    assert RegisterBrokerBody.decode_registration(REGISTRATION.encode()) == REGISTRATION


def test_old_broker_registers_the_bare_table() -> None:
    table = REGISTRATION.topic_config_serialize_wrapper
    body = RegisterBrokerBody.decode_registration(table.encode(), version=36)
    assert body.topic_config_serialize_wrapper == table


def test_compressed_registration_of_an_older_broker_has_no_mappings() -> None:
    plain = zlib.decompress(RegisterBrokerBody().encode_compressed())
    body = RegisterBrokerBody.decode_registration(zlib.compress(plain[:-4]), compressed=True)
    assert body == RegisterBrokerBody()


def test_broken_compressed_registration_is_refused() -> None:
    data = REGISTRATION.encode_compressed()
    plain = zlib.decompress(data)
    broken = [b"", b"garbage", data[:-1], zlib.compress(plain[:-1]), zlib.compress(b"\xff" * 8)]
    broken.append(zlib.compress(plain.replace(b"SINGLE_TAG", b"SINGLE\xff\xffAG")))
    broken.append(zlib.compress(plain.replace(b"T 8 8 6", b"T x 8 6")))
    for body in broken:
        with pytest.raises(MalformedBodyError):
            RegisterBrokerBody.decode_registration(body, compressed=True)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("T 8 8 6 SINGLE_TAG {}", TopicConfig("T", 8, 8)),
        ("T 8 4 2 MULTI_TAG", TopicConfig("T", 8, 4, 2, "MULTI_TAG")),
        ('T 8 8 6 SINGLE_TAG {"a":"b c"}', TopicConfig("T", 8, 8, attributes={"a": "b c"})),
    ],
)
def test_topic_in_one_line(text: str, topic: TopicConfig) -> None:
    assert parse_topic_text(text) == topic
    assert parse_topic_text(topic_text(topic)) == topic
    assert topic_text(TopicConfig("T", 8, 8)) == "T 8 8 6 SINGLE_TAG {}"
