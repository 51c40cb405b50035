"""A request of each code, about one topic and one group: what an ACL is asked about.

None of them waits for messages, and none harms a server that is used for nothing else.
"""

import json
from typing import Any, NamedTuple

from rockhopper.protocol.codes import RequestCode as Code

TOPIC, GROUP, BYSTANDER = "orders", "billing", "bystander"
DEAD_LETTERS = f"%DLQ%{GROUP}"


class Act(NamedTuple):
    """What is sent, whoever sends it."""

    code: Code
    ext: dict[str, str]
    body: bytes = b""


def _act(code: Code, document: Any = None, **ext: object) -> Act:
    body = b"" if document is None else json.dumps(document).encode()
    return Act(code, {name: str(value) for name, value in ext.items()}, body)


def send(topic: str = TOPIC) -> Act:
    """One message, by the short names that all clients use."""
    values = ("producers", topic, "TBW102", 4, 0, 0, 0, 0, "", 0, "false", 16, "false")
    fields = dict(zip("abcdefghijklm", map(str, values), strict=True))
    return Act(Code.SEND_MESSAGE_V2, fields, b"x")


def send_by_long_names(topic: str = TOPIC) -> Act:
    """One message, by the long names of the oldest clients."""
    return _act(Code.SEND_MESSAGE, None, **_LONG, topic=topic)


def pull(topic: str = TOPIC, group: str = GROUP) -> Act:
    """A pull that comes back at once."""
    return _act(Code.PULL_MESSAGE, None, **_pulled(topic, group))


def route(topic: str = TOPIC) -> Act:
    """The question where a topic is; of a name server."""
    return _act(Code.GET_ROUTEINFO_BY_TOPIC, topic=topic)


def create_topic(topic: str = TOPIC) -> Act:
    """A topic of one queue."""
    return _act(
        Code.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=1,
        writeQueueNums=1,
        perm=6,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order="false",
    )


_LONG: dict[str, object] = {
    "producerGroup": "producers",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 0,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "unitMode": "false",
}
_REPLY = {**_LONG, "bornHost": "127.0.0.1:1", "storeHost": "127.0.0.1:1", "storeTimestamp": 0}
_BOTH: dict[str, object] = {"topic": TOPIC, "consumerGroup": GROUP}
_OF_QUEUE = {**_BOTH, "queueId": 0}
_POPPED = {**_OF_QUEUE, "extraInfo": f"0 0 60000 0 0 {TOPIC} 0 0", "offset": 0}
_WAITING_NOT = {"pollTime": 0, "bornTime": 0}
_QUEUES = {
    "consumerGroup": GROUP,
    "clientId": "c",
    "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": 0}],
}


def _pulled(topic: str, group: str) -> dict[str, object]:
    return {
        "topic": topic,
        "consumerGroup": group,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 1,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def _subscribed(group: str, *topics: str) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [
            {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": []} for topic in topics
        ],
        "unitMode": False,
    }


def _beat(*consumers: dict[str, Any]) -> Act:
    producers = [{"groupName": "producers"}]
    body = {"clientID": "c", "producerDataSet": producers, "consumerDataSet": consumers}
    return _act(Code.HEART_BEAT, body)


def _producing() -> dict[str, Act]:
    batch = send()
    return {
        "send": send(),
        "send by long names": send_by_long_names(),
        "send a batch": Act(Code.SEND_BATCH_MESSAGE, {**batch.ext, "m": "true"}, b"x"),
        "send to the retry topic": send(f"%RETRY%{GROUP}"),
        "send to the retry topic by long names": send_by_long_names(f"%RETRY%{GROUP}"),
        "send to the dead letters": send(DEAD_LETTERS),
        "recall": _act(Code.RECALL_MESSAGE, producerGroup="p", topic=TOPIC, recallHandle="x"),
        "send back": _act(
            Code.CONSUMER_SEND_MSG_BACK,
            offset=0,
            group=GROUP,
            delayLevel=0,
            originMsgId="x",
            originTopic=TOPIC,
            unitMode="false",
            maxReconsumeTimes=16,
        ),
        "end a transaction": _act(
            Code.END_TRANSACTION,
            topic=TOPIC,
            producerGroup="producers",
            tranStateTableOffset=0,
            commitLogOffset=0,
            commitOrRollback=8,
            fromTransactionCheck="false",
            msgId="x",
            transactionId="x",
        ),
        "end a transaction of no topic": _act(
            Code.END_TRANSACTION,
            producerGroup="producers",
            tranStateTableOffset=0,
            commitLogOffset=0,
            commitOrRollback=8,
        ),
        "reply": _act(Code.SEND_REPLY_MESSAGE, None, **_REPLY, topic=TOPIC),
        "reply by short names": Act(Code.SEND_REPLY_MESSAGE_V2, send().ext, b"x"),
    }


def _consuming() -> dict[str, Act]:
    return {
        "pull": pull(),
        "pull of the retry topic": pull(f"%RETRY%{GROUP}"),
        "pull of another's retry topic": pull("%RETRY%others"),
        "pull of the dead letters": pull(DEAD_LETTERS),
        "lite pull": _act(Code.LITE_PULL_MESSAGE, None, **_pulled(TOPIC, GROUP)),
        "pop": _act(
            Code.POP_MESSAGE,
            None,
            **_OF_QUEUE,
            **_WAITING_NOT,
            maxMsgNums=1,
            invisibleTime=60_000,
            initMode=0,
            expType="TAG",
            exp="*",
            order="false",
        ),
        "acknowledge": _act(Code.ACK_MESSAGE, None, **_POPPED),
        "acknowledge several": _act(
            Code.BATCH_ACK_MESSAGE, {"brokerName": "b", "acks": [{"c": GROUP, "t": TOPIC}]}
        ),
        "change invisible time": _act(
            Code.CHANGE_MESSAGE_INVISIBLETIME, None, **_POPPED, invisibleTime=60_000
        ),
        "peek": _act(Code.PEEK_MESSAGE, None, **_OF_QUEUE, maxMsgNums=1),
        "wait for messages": _act(Code.NOTIFICATION, None, **_OF_QUEUE, **_WAITING_NOT),
        "ask who waits": _act(Code.POLLING_INFO, None, **_OF_QUEUE),
        "query offset": _act(Code.QUERY_CONSUMER_OFFSET, None, **_OF_QUEUE),
        "update offset": _act(Code.UPDATE_CONSUMER_OFFSET, None, **_OF_QUEUE, commitOffset=0),
        "lock": _act(Code.LOCK_BATCH_MQ, _QUEUES),
        "unlock": _act(Code.UNLOCK_BATCH_MQ, _QUEUES),
        "assignment": _act(
            Code.QUERY_ASSIGNMENT,
            {
                "topic": TOPIC,
                "consumerGroup": GROUP,
                "clientId": "c",
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            },
        ),
        "members": _act(Code.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP),
        "heartbeat of a consumer": _beat(_subscribed(GROUP, TOPIC, f"%RETRY%{GROUP}")),
        "heartbeat of a producer": _beat(),
        "leave as a consumer": _act(Code.UNREGISTER_CLIENT, clientID="c", consumerGroup=GROUP),
        "leave as a producer": _act(Code.UNREGISTER_CLIENT, clientID="c", producerGroup="p"),
        "check subscription": _act(
            Code.CHECK_CLIENT_CONFIG,
            {
                "clientId": "c",
                "group": GROUP,
                "namespace": "",
                "subscriptionData": {
                    "topic": TOPIC,
                    "subString": "a = 1",
                    "expressionType": "SQL92",
                    "tagsSet": [],
                    "codeSet": [],
                },
            },
        ),
    }


def _looking() -> dict[str, Act]:
    queue = {"topic": TOPIC, "queueId": 0}
    return {
        "query by key": _act(
            Code.QUERY_MESSAGE,
            topic=TOPIC,
            key="k",
            maxNum=1,
            beginTimestamp=0,
            endTimestamp=1 << 60,
        ),
        "view a message": _act(Code.VIEW_MESSAGE_BY_ID, topic=TOPIC, offset=0),
        "view a message of no topic": _act(Code.VIEW_MESSAGE_BY_ID, offset=0),
        "search by time": _act(Code.SEARCH_OFFSET_BY_TIMESTAMP, None, **queue, timestamp=0),
        "max offset": _act(Code.GET_MAX_OFFSET, None, **queue),
        "min offset": _act(Code.GET_MIN_OFFSET, None, **queue),
        "earliest store time": _act(Code.GET_EARLIEST_MSG_STORETIME, None, **queue),
        "look into a queue": _act(Code.QUERY_CONSUME_QUEUE, None, **queue, index=0, count=1),
        "look into a queue for a group": _act(
            Code.QUERY_CONSUME_QUEUE, None, **queue, index=0, count=1, consumerGroup=GROUP
        ),
    }


def _topics() -> dict[str, Act]:
    made = create_topic()
    config = {"topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    return {
        "create a topic": made,
        "create topics": _act(Code.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": [config]}),
        "create a static topic": Act(
            Code.UPDATE_AND_CREATE_STATIC_TOPIC, {**made.ext, "force": "false"}, b"{}"
        ),
        "delete a topic": _act(Code.DELETE_TOPIC_IN_BROKER, topic=TOPIC),
        "topic": _act(Code.GET_TOPIC_CONFIG, topic=TOPIC, lo="true"),
        "topics": _act(Code.GET_ALL_TOPIC_CONFIG),
        "topic stats": _act(Code.GET_TOPIC_STATS_INFO, topic=TOPIC),
        "who consumes a topic": _act(Code.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC),
        "topics of the system": _act(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
        "check a half message again": _act(Code.RESUME_CHECK_HALF_MESSAGE, topic=TOPIC, msgId="x"),
    }


def _groups() -> dict[str, Act]:
    both = {"topic": TOPIC, "group": GROUP}
    return {
        "create a group": _act(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": GROUP}),
        "create groups": _act(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": GROUP}]},
        ),
        "delete a group": _act(Code.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset="false"),
        "group": _act(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP),
        "groups": _act(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        "connections of a group": _act(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP),
        "connections of producers": _act(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="p"),
        "subscription": _act(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, None, **both),
        "topics of a group": _act(Code.QUERY_TOPICS_BY_CONSUMER, group=GROUP),
        "progress of a group": _act(Code.GET_CONSUME_STATS, consumerGroup=GROUP),
        "progress in a topic": _act(Code.GET_CONSUME_STATS, None, **_BOTH),
        "progress of all": _act(Code.GET_BROKER_CONSUME_STATS, isOrder="false"),
        "time span": _act(Code.QUERY_CONSUME_TIME_SPAN, None, **both),
        "reset offsets": _act(
            Code.INVOKE_BROKER_TO_RESET_OFFSET, None, **both, timestamp=-1, isForce="true"
        ),
        "corrected offsets": _act(
            Code.QUERY_CORRECTION_OFFSET, topic=TOPIC, filterGroups=GROUP, compareGroup=GROUP
        ),
        "corrected offsets without others": _act(
            Code.QUERY_CORRECTION_OFFSET, topic=TOPIC, filterGroups="others", compareGroup=GROUP
        ),
        "clone offsets": _act(
            Code.CLONE_GROUP_OFFSET,
            topic=TOPIC,
            srcGroup=GROUP,
            destGroup=GROUP,
            offline="false",
        ),
        "clone offsets to others": _act(
            Code.CLONE_GROUP_OFFSET,
            topic=TOPIC,
            srcGroup=GROUP,
            destGroup="others",
            offline="false",
        ),
        "forbid a group": _act(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, None, **both, readable="true"),
        "set the request mode": _act(
            Code.SET_MESSAGE_REQUEST_MODE,
            {"topic": TOPIC, "consumerGroup": GROUP, "mode": "PULL", "popShareQueueNum": 0},
        ),
        "request modes": _act(Code.GET_ALL_MESSAGE_REQUEST_MODE),
        "state of a client": _act(
            Code.GET_CONSUMER_RUNNING_INFO,
            consumerGroup=GROUP,
            clientId="away",
            jstackEnable="false",
        ),
        "consume directly": _act(
            Code.CONSUME_MESSAGE_DIRECTLY,
            None,
            **_BOTH,
            clientId="away",
            msgId="7F00000100002A9F0000000000000000",
            brokerName="b",
        ),
        "offsets of clients": _act(
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, None, **both, clientAddr="away"
        ),
    }


def _users() -> dict[str, Act]:
    named, subject = {"username": BYSTANDER}, {"subject": f"User:{BYSTANDER}"}
    user = {**named, "password": "the secret of a bystander", "userType": "Normal"}
    entry = {
        "resource": ["Topic:elsewhere"],
        "actions": ["Pub"],
        "sourceIps": [],
        "decision": "Deny",
    }
    rules = {**subject, "policies": [{"policyType": "Custom", "entries": [entry]}]}
    return {
        "create a user": _act(Code.AUTH_CREATE_USER, user, **named),
        "update a user": _act(Code.AUTH_UPDATE_USER, user, **named),
        "user": _act(Code.AUTH_GET_USER, None, **named),
        "users": _act(Code.AUTH_LIST_USER, filter=""),
        "create rules": _act(Code.AUTH_CREATE_ACL, rules, **subject),
        "update rules": _act(Code.AUTH_UPDATE_ACL, rules, **subject),
        "delete rules": _act(Code.AUTH_DELETE_ACL, None, **subject, resource="Topic:elsewhere"),
        "rules": _act(Code.AUTH_GET_ACL, None, **subject),
        "rules of all": _act(Code.AUTH_LIST_ACL, subjectFilter="", resourceFilter=""),
        "delete a user": _act(Code.AUTH_DELETE_USER, username="nobody-there"),
    }


def _broker() -> dict[str, Act]:
    changed = Act(Code.UPDATE_BROKER_CONFIG, {}, b"longPollingEnable=true\n")
    return {
        "change settings": changed,
        "settings": _act(Code.GET_BROKER_CONFIG),
        "runtime figures": _act(Code.GET_BROKER_RUNTIME_INFO),
        "stats": _act(Code.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey=TOPIC),
        "offsets of all": _act(Code.GET_ALL_CONSUMER_OFFSET),
        "delayed offsets": _act(Code.GET_ALL_DELAY_OFFSET),
        "producers": _act(Code.GET_ALL_PRODUCER_INFO),
        "timer check point": _act(Code.GET_TIMER_CHECK_POINT),
        "timer figures": _act(Code.GET_TIMER_METRICS),
        "clean consume queues": _act(Code.CLEAN_EXPIRED_CONSUMEQUEUE),
        "clean unused topics": _act(Code.CLEAN_UNUSED_TOPIC),
        "delete old files": _act(Code.DELETE_EXPIRED_COMMITLOG),
        "progress of RocksDB": _act(Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, topic=TOPIC),
        "export settings": _act(Code.EXPORT_ROCKSDB_CONFIG_TO_JSON, configType="topics;"),
        "replication": _act(Code.GET_BROKER_HA_STATUS),
        "control cold reads": Act(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"a=1\n"),
        "control cold reads no more": Act(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"a"),
        "control of cold reads": _act(Code.GET_COLD_DATA_FLOW_CTR_INFO),
        "read mode": _act(Code.SET_COMMITLOG_READ_MODE, READ_AHEAD_MODE="1"),
    }


def of_broker() -> dict[str, Act]:
    """What a broker is asked, by name."""
    parts = (_producing(), _consuming(), _looking(), _topics(), _groups(), _users(), _broker())
    return {name: act for part in parts for name, act in part.items()}


def of_name_service() -> dict[str, Act]:
    """What a name server is asked, by name."""
    value = {"namespace": "ns", "key": "k"}
    broker = {"brokerName": "elsewhere", "clusterName": "elsewhere", "brokerAddr": "127.0.0.1:1"}
    return {
        "route": route(),
        "cluster": _act(Code.GET_BROKER_CLUSTER_INFO),
        "put a value": _act(Code.PUT_KV_CONFIG, None, **value, value="v"),
        "value": _act(Code.GET_KV_CONFIG, None, **value),
        "values": _act(Code.GET_KVLIST_BY_NAMESPACE, namespace="ns"),
        "delete a value": _act(Code.DELETE_KV_CONFIG, None, **value),
        "register a broker": _act(
            Code.REGISTER_BROKER,
            {"topicConfigSerializeWrapper": {"topicConfigTable": {}}, "filterServerList": []},
            **broker,
            brokerId=0,
            haServerAddr="127.0.0.1:2",
            compressed="false",
            bodyCrc32=0,
        ),
        "unregister a broker": _act(Code.UNREGISTER_BROKER, None, **broker, brokerId=0),
        "heartbeat of a broker": _act(Code.BROKER_HEARTBEAT, None, **broker),
        "version of a broker": _act(
            Code.QUERY_DATA_VERSION,
            {"counter": 0, "stateVersion": 0, "timestamp": 0},
            **broker,
            brokerId=0,
        ),
        "forbid writing": _act(Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="elsewhere"),
        "permit writing": _act(Code.ADD_WRITE_PERM_OF_BROKER, brokerName="elsewhere"),
        "members of a broker": _act(
            Code.GET_BROKER_MEMBER_GROUP, clusterName="elsewhere", brokerName="elsewhere"
        ),
        "topics": _act(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        "topics of a cluster": _act(Code.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster"),
        "topics of the system": _act(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        "topics of units": _act(Code.GET_UNIT_TOPIC_LIST),
        "topics with units": _act(Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
        "topics with units but none": _act(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
        "register a topic": _act(Code.REGISTER_TOPIC_IN_NAMESRV, {"queueDatas": []}, topic=TOPIC),
        "delete a topic": _act(Code.DELETE_TOPIC_IN_NAMESRV, topic="elsewhere"),
        "change settings": Act(Code.UPDATE_NAMESRV_CONFIG, {}, b"clusterTest=false\n"),
        "settings": _act(Code.GET_NAMESRV_CONFIG),
    }
