"""Routes: what each client can read, and what the reference leaves out."""

from rockhopper.protocol.bodies import BrokerData, QueueData, TopicRouteData

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
