"""What the name server answers, byte by byte where clients parse it with code of their own."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.advertisement import Advertisement
from rockhopper.broker.settings.config_file import build_config
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.name_server import BODY, FIELDS, REMOTE, NameServer
from tests.support.peers import Clock, Peer

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_a_route_is_compact_and_names_the_address_at_which_the_client_arrived(
    server: NameServer,
) -> None:
    server.topics.put(TopicConfig("orders", read_queue_nums=4, write_queue_nums=2))
    peer = Peer("192.0.2.9")
    peer.addresses = peer.addresses._replace(local_host="192.0.2.1")
    answer = server.ask(ROUTE, {"topic": "orders"}, peer=peer, version=401)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"192.0.2.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":'
        b'"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":2}]}'
    )


@pytest.mark.parametrize(
    ("code", "ext"),
    [
        (ROUTE, {"topic": "orders"}),
        (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
        (
            RequestCode.GET_BROKER_MEMBER_GROUP,
            {"clusterName": "DefaultCluster", "brokerName": "broker-a"},
        ),
    ],
)
def test_an_address_on_the_clients_own_host_is_told_as_it_is_set(
    tmp_path: Path, clock: Clock, code: RequestCode, ext: dict[str, str]
) -> None:
    config = build_config({"advertise": "192.0.2.9=127.0.0.1:20911"})
    server = NameServer(tmp_path, config, with_broker=True, clock=clock)
    server.topics.put(TopicConfig("orders"))
    peer = Peer("192.0.2.9")
    peer.addresses = peer.addresses._replace(local_host="192.0.2.1")
    assert b'"127.0.0.1:20911"' in server.ask(code, ext, peer=peer).body


def test_clients_of_5_0_and_later_are_told_whether_slaves_act_as_masters(
    server: NameServer,
) -> None:
    data = server.ask(ROUTE, {"topic": "TBW102"}, version=413).body
    assert b'"cluster":"DefaultCluster","enableActingMaster":false}' in data
    assert b"enableActingMaster" not in server.ask(ROUTE, {"topic": "TBW102"}, version=412).body
    cluster = server.ask(RequestCode.GET_BROKER_CLUSTER_INFO, version=475).body
    assert b'"cluster":"DefaultCluster","enableActingMaster":false}' in cluster
    server.register(enableActingMaster="true")
    data = server.ask(ROUTE, {"topic": "orders"}, version=475).body
    assert b'"cluster":"C","enableActingMaster":true}' in data


def test_old_clients_get_bare_broker_ids_unless_they_ask_otherwise(server: NameServer) -> None:
    bare = server.ask(ROUTE, {"topic": "TBW102"}, version=400).body
    assert b'"brokerAddrs":{0:"127.0.0.1:10911"}' in bare
    asked = {"topic": "TBW102", "acceptStandardJsonOnly": "true"}
    assert b'{"0":"127.0.0.1:10911"}' in server.ask(ROUTE, asked, version=121).body
    assert b'{"0":"127.0.0.1:10911"}' in server.ask(ROUTE, {"topic": "TBW102"}, version=401).body


def test_no_route_for_4_x_clients_holds_words_that_only_json_knows(server: NameServer) -> None:
    server.register(enableActingMaster="true")
    body = server.ask(ROUTE, {"topic": "orders"}, version=412).body
    assert not any(word in body for word in (b"true", b"false", b"null", b" "))


def test_an_unknown_topic_is_17_with_rocketmqs_remark(server: NameServer) -> None:
    answer = server.ask(ROUTE, {"topic": "orders"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(
        "No topic route info in name server for the topic: orders\nSee http"
    )
    assert "orders" not in server.topics


def test_a_route_without_a_topic_names_the_missing_field(server: NameServer) -> None:
    answer = server.ask(ROUTE)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in (answer.remark or "")


def test_a_lookup_creates_the_topic_when_the_settings_say_so(tmp_path: Path, clock: Clock) -> None:
    config = build_config({"autoCreateTopic": "on-lookup"})
    server = NameServer(tmp_path, config, with_broker=True, clock=clock)
    answer = server.ask(ROUTE, {"topic": "orders"}, version=121)
    assert answer.code == ResponseCode.SUCCESS
    assert b'"writeQueueNums":4' in answer.body
    assert server.ask(ROUTE, {"topic": "%RETRY%g"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_with_creation_off_the_pattern_of_new_topics_has_no_route(
    tmp_path: Path, clock: Clock
) -> None:
    config = build_config({"autoCreateTopicEnable": "false"})
    server = NameServer(tmp_path, config, with_broker=True, clock=clock)
    server.topics.put(TopicConfig("TBW102", perm=7))
    assert server.ask(ROUTE, {"topic": "TBW102"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_zone_keeps_only_its_brokers(alone: NameServer) -> None:
    alone.register(__ZONE_NAME="east")
    alone.register(brokerName="broker-c", brokerAddr="10.0.0.3:10911", __ZONE_NAME="west")
    body = alone.ask(ROUTE, {"topic": "orders", "__ZONE_MODE": "true", "__ZONE_NAME": "WEST"}).body
    route = json.loads(body)
    assert [broker["brokerName"] for broker in route["brokerDatas"]] == ["broker-c"]
    assert [queues["brokerName"] for queues in route["queueDatas"]] == ["broker-c"]


def test_a_java_brokers_registration_is_taken(alone: NameServer) -> None:
    answer = alone.register(bodyCrc32=str(zlib.crc32(BODY) & 0x7FFFFFFF))
    assert answer.code == ResponseCode.SUCCESS
    route = json.loads(alone.ask(ROUTE, {"topic": "orders"}).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.2:10911"}
    cluster = alone.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    assert cluster == (
        b'{"brokerAddrTable":{"broker-b":{"brokerAddrs":{0:"10.0.0.2:10911"},"brokerName":'
        b'"broker-b","cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["broker-b"]}}'
    )


async def test_a_compressed_registration_is_taken(alone: NameServer) -> None:
    def sized(text: str) -> bytes:
        return struct.pack(">i", len(text)) + text.encode()

    body = zlib.compress(
        sized('{"counter":1,"stateVersion":0,"timestamp":5}')
        + struct.pack(">i", 2)
        + sized('orders 4 2 6 SINGLE_TAG {"message.type":"FIFO"}')
        + sized("TBW102 8 8 7 SINGLE_TAG")
        + sized("[]")
        + struct.pack(">i", 0)
    )
    fields = FIELDS | {"compressed": "true"}
    answer = await alone.ask_long(RequestCode.REGISTER_BROKER, fields, body)
    assert answer.code == ResponseCode.SUCCESS
    assert b'"writeQueueNums":2' in alone.ask(ROUTE, {"topic": "orders"}).body


def test_the_registration_of_a_very_old_broker_is_taken(alone: NameServer) -> None:
    bare = json.dumps(json.loads(BODY)["topicConfigSerializeWrapper"]).encode()
    answer = alone.ask(RequestCode.REGISTER_BROKER, FIELDS, bare, version=36)
    assert answer.code == ResponseCode.SUCCESS
    assert alone.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"topicConfigSerializeWrapper":5}', b"\xff\xfe"])
def test_a_registration_that_does_not_decode_is_an_error(alone: NameServer, body: bytes) -> None:
    answer = alone.ask(RequestCode.REGISTER_BROKER, FIELDS, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert alone.routes.members("") == []


def test_a_registration_with_another_checksum_is_refused(alone: NameServer) -> None:
    answer = alone.register(bodyCrc32="1")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


def test_a_registration_of_one_topic_is_refused_as_rocketmq_does(alone: NameServer) -> None:
    body = (
        b'{"topicConfigSerializeWrapper":{"dataVersion":{},"topicConfigTable":{"orders":'
        b'{"topicName":"orders"}}}}'
    )
    answer = alone.ask(RequestCode.REGISTER_BROKER, FIELDS, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")


def test_the_broker_of_this_process_need_not_register(server: NameServer) -> None:
    ours = {"brokerName": "broker-a", "rockhopperInstance": "our-instance"}
    assert server.register(**ours).code == ResponseCode.SUCCESS
    assert len(server.routes.members("")) == 1


def test_another_broker_of_the_same_name_is_told_to_take_its_own(server: NameServer) -> None:
    answer = server.register(brokerName="broker-a")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "brokerName broker-a" in (answer.remark or "")


def test_closing_the_connection_unregisters(alone: NameServer) -> None:
    peer = Peer("10.0.0.2")
    for _ in range(2):
        alone.ask(RequestCode.REGISTER_BROKER, FIELDS, BODY, peer=peer)
    assert len(peer.on_close) == 1
    peer.hang_up()
    assert alone.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_stopping_broker_does_not_take_out_who_registered_at_its_address(
    alone: NameServer,
) -> None:
    first, second = Peer("10.0.0.2", 1), Peer("10.0.0.2", 2)
    for peer in (first, second):
        alone.ask(RequestCode.REGISTER_BROKER, FIELDS, BODY, peer=peer)
    alone.ask(RequestCode.UNREGISTER_BROKER, FIELDS, peer=first)
    assert alone.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.SUCCESS


def test_a_broker_of_the_same_name_is_taken_only_into_a_replica_set(server: NameServer) -> None:
    name = server.config.broker_name
    refused = server.register(brokerName=name, clusterName=server.config.cluster_name)
    assert "give the other broker its own name" in (refused.remark or "")
    server.advertisement = Advertisement(1, leads_in=5)
    taken = server.register(brokerName=name, clusterName=server.config.cluster_name, brokerId="2")
    assert taken.code == ResponseCode.SUCCESS
    route = json.loads(server.ask(ROUTE, {"topic": "TBW102"}).body)
    (broker,) = route["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": "127.0.0.1:10911", "2": "10.0.0.2:10911"}


def test_a_slave_of_the_broker_here_is_told_where_to_follow_it(server: NameServer) -> None:
    names = {"brokerName": server.config.broker_name, "clusterName": server.config.cluster_name}
    server.advertisement = Advertisement(slaves_port=10_912)
    refused = server.register(**names)
    assert "give the other broker its own name" in (refused.remark or "")
    taken = server.register(**names, brokerId="1", enableActingMaster="false")
    assert taken.ext == {"masterAddr": "127.0.0.1:10911", "haServerAddr": "127.0.0.1:10912"}
    route = json.loads(server.ask(ROUTE, {"topic": "TBW102"}).body)
    (broker,) = route["brokerDatas"]
    assert broker["brokerAddrs"] == {"0": "127.0.0.1:10911", "1": "10.0.0.2:10911"}
    # Topics are known better here than at a slave.
    assert server.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_slave_that_goes_lets_no_producer_back(server: NameServer) -> None:
    names = {"brokerName": server.config.broker_name, "clusterName": server.config.cluster_name}
    server.advertisement = Advertisement(slaves_port=10_912)
    server.register(**names, brokerId="1")
    server.routes.set_write_wiped(server.config.broker_name, wiped=True)
    server.ask(RequestCode.UNREGISTER_BROKER, FIELDS | names, peer=REMOTE)
    route = json.loads(server.ask(ROUTE, {"topic": "TBW102"}).body)
    assert [queues["perm"] & 2 for queues in route["queueDatas"]] == [0]


def test_a_follower_creates_no_topic_for_a_look_up(tmp_path: Path, clock: Clock) -> None:
    config = build_config({"autoCreateTopic": "on-lookup"})
    server = NameServer(tmp_path, config, with_broker=True, clock=clock)
    server.advertisement = Advertisement(1, elected_in=5)
    assert server.ask(ROUTE, {"topic": "new"}).code == ResponseCode.TOPIC_NOT_EXIST
    assert "new" not in server.topics
    server.advertisement = Advertisement(1, leads_in=6)
    assert server.ask(ROUTE, {"topic": "new"}).code == ResponseCode.SUCCESS


def test_unregistering_removes_the_broker(alone: NameServer) -> None:
    alone.register()
    assert alone.ask(RequestCode.UNREGISTER_BROKER, FIELDS, peer=REMOTE).code == (
        ResponseCode.SUCCESS
    )
    assert alone.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_broker_learns_whether_it_has_to_register(alone: NameServer) -> None:
    same = b'{"counter":2,"stateVersion":0,"timestamp":1700000000000}'
    unknown = alone.ask(RequestCode.QUERY_DATA_VERSION, FIELDS, same)
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    alone.register()
    known = alone.ask(RequestCode.QUERY_DATA_VERSION, FIELDS, same)
    assert known.ext == {"changed": "false"}
    assert fastjson.loads(known.body) == json.loads(same)
    older = same.replace(b'"counter":2', b'"counter":1')
    assert alone.ask(RequestCode.QUERY_DATA_VERSION, FIELDS, older).ext == {"changed": "true"}


def test_a_heartbeat_keeps_a_broker(alone: NameServer, clock: Clock) -> None:
    alone.register()
    clock.advance(119_000)
    assert alone.ask(RequestCode.BROKER_HEARTBEAT, FIELDS).code == ResponseCode.SUCCESS
    clock.advance(119_000)
    alone.routes.expire(clock())
    assert alone.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.SUCCESS


def test_a_single_topic_is_registered(alone: NameServer) -> None:
    alone.register()
    body = (
        b'{"queueDatas":[{"brokerName":"broker-b","perm":6,"readQueueNums":3,"topicSysFlag":0,'
        b'"writeQueueNums":3}]}'
    )
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    assert alone.ask(code, {"topic": "new"}, body).code == ResponseCode.SUCCESS
    assert b'"readQueueNums":3' in alone.ask(ROUTE, {"topic": "new"}).body


def names(answer: Command) -> list[str]:
    topics: list[str] = json.loads(answer.body)["topicList"]
    return topics


def test_topics_are_listed(server: NameServer) -> None:
    server.register()
    server.topics.put(TopicConfig("mine", sys_flag=1))
    server.topics.put(TopicConfig("shared", sys_flag=2))
    everything = names(server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert {"orders", "mine", "shared", "TBW102"} <= set(everything)
    in_c = names(server.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}))
    assert in_c == ["TBW102", "orders"]
    assert names(server.ask(RequestCode.GET_UNIT_TOPIC_LIST)) == ["mine"]
    assert names(server.ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)) == ["shared"]
    assert names(server.ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)) == ["shared"]


def test_system_topics_are_clusters_and_brokers_and_an_address_to_ask_more(
    server: NameServer,
) -> None:
    answer = server.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert answer.body == (
        b'{"brokerAddr":"127.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
    )


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("enableAllTopicList", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        ("enableTopicList", RequestCode.GET_UNIT_TOPIC_LIST),
    ],
)
def test_lists_may_be_switched_off(
    tmp_path: Path, clock: Clock, setting: str, code: RequestCode
) -> None:
    server = NameServer(tmp_path, build_config({setting: "false"}), with_broker=True, clock=clock)
    assert server.ask(code).remark == "disable"


def test_members_of_a_broker_name_are_listed(server: NameServer) -> None:
    server.register()
    answer = server.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "broker-b"}
    )
    assert answer.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.2:10911"},"brokerName":"broker-b",'
        b'"cluster":"C"}}'
    )


def test_write_permission_is_wiped_and_given_back(server: NameServer) -> None:
    count = str(len(server.topics))
    who = {"brokerName": "broker-a"}
    wiped = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, who)
    assert wiped.ext == {"wipeTopicCount": count}
    assert b'"perm":5' in server.ask(ROUTE, {"topic": "TBW102"}).body
    added = server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, who)
    assert added.ext == {"addTopicCount": count}
    assert b'"perm":7' in server.ask(ROUTE, {"topic": "TBW102"}).body


def test_deleting_a_topic_forgets_the_brokers_elsewhere(server: NameServer) -> None:
    server.register()
    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    assert server.ask(code, {"topic": "orders"}).code == ResponseCode.SUCCESS
    assert server.ask(ROUTE, {"topic": "orders"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_values_are_kept_by_namespace_and_key(server: NameServer) -> None:
    where = {"namespace": "N", "key": "k"}
    missing = server.ask(RequestCode.GET_KV_CONFIG, where)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    server.ask(RequestCode.PUT_KV_CONFIG, where | {"value": "v"})
    assert server.ask(RequestCode.GET_KV_CONFIG, where).ext == {"value": "v"}
    listed = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert listed.body == b'{"table":{"k":"v"}}'
    server.ask(RequestCode.DELETE_KV_CONFIG, where)
    gone = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert gone.code == ResponseCode.QUERY_NOT_FOUND
    incomplete = server.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert "value" in (incomplete.remark or "")


def test_the_order_of_a_topic_is_in_its_route_and_told_to_its_brokers(
    tmp_path: Path, clock: Clock
) -> None:
    config = build_config({"orderMessageEnable": "true"})
    server = NameServer(tmp_path, config, with_broker=False, clock=clock)
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-b:4"}
    server.ask(RequestCode.PUT_KV_CONFIG, order)
    assert server.register().body == b'{"table":{"orders":"broker-b:4"}}'
    route: dict[str, Any] = json.loads(server.ask(ROUTE, {"topic": "orders"}).body)
    assert route["orderTopicConf"] == "broker-b:4"


def test_settings_are_shown_and_never_changed_from_outside(server: NameServer) -> None:
    shown = server.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    assert "namesrvPort=9876\n" in shown
    refused = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/etc/passwd")
    assert refused.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    ],
)
def test_strangers_may_not_administer(server: NameServer, code: RequestCode) -> None:
    assert server.ask(code, peer=REMOTE).code == ResponseCode.NO_PERMISSION


def test_a_code_that_is_a_brokers_is_not_served(server: NameServer) -> None:
    answer = server.ask(RequestCode.PULL_MESSAGE)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 11 not supported"
