"""Where our status codes are not Apache's, and why."""

from typing import Any

_HANDLES = ("garbage", "blank", "short", "letters")

DIFFERENCES: dict[str, dict[str, Any]] = {
    "a handle that is none is the client's fault, not an error inside": {
        **{f"ack a handle of {what}": {"status": 40013, "entries": [40013]} for what in _HANDLES},
        **{f"change a handle of {what}": {"status": 40013} for what in _HANDLES},
        **{f"forward a handle of {what}": {"status": 40013} for what in _HANDLES},
        "ack a good and a bad one": {"status": 30000, "entries": [20000, 40013]},
    },
    "a topic that is not there is said to be not there": {
        "topic of 127 characters": {"status": 40402, "entries": [40402]},
        "topic unknown": {"status": 40402, "entries": [40402]},
        "receive from an unknown topic": {"status": 40402},
        "recall from an unknown topic": {"status": 40402},
    },
    "topics of groups are nobody's to send to": {
        "topic for retries": {"status": 40002},
        "topic of dead letters": {"status": 40002},
    },
    "the code names what is wrong, where Apache's says that something is": {
        "receive by broken SQL": {"status": 40010},
        "end of garbage": {"status": 40008},
        "recall garbage": {"status": 42800},
        "recall nothing": {"status": 42800},
        "recall from a normal topic": {"status": 42800},
        "property __SHARDINGKEY": {"status": 40007},
        "property without a name": {"status": 40007},
        "message group empty": {"status": 40006},
        "priority below zero": {"status": 40014},
        "heartbeat without a type": {"status": 40015},
        "gzip that is none": {"status": 40016},
        "bytes that are no request": {"grpc": "INTERNAL"},
    },
    "a transaction is ended by the topic in which it was begun": {
        "end of another topic": {"status": 40008},
    },
    "every message of a request gets its entry": {
        "two messages": {"status": 20000, "entries": [20000, 20000]},
    },
    "a poll before its settings is served; Apache's fails inside": {
        "receive before settings": {"status": 40401},
    },
    "what Apache's proxy does not serve": {
        **{
            f"{rpc} of nothing": {"status": 40002}
            for rpc in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset")
        },
    },
    "lite topics are not supported": {
        "SyncLiteSubscription of nothing": {"status": 50500},
    },
    "stricter than Apache's: no official client sends it": {
        "settings of a consumer of an illegal topic": {"grpc": "INVALID_ARGUMENT"},
        "telemetry of a stack trace nobody asked for": {"grpc": "INVALID_ARGUMENT"},
    },
    "a handle is good for the topic and the group that it was given out for": {
        "ack for an unknown group": {"status": 40013, "entries": [40013]},
        "ack of another topic": {"status": 40013, "entries": [40013]},
        "ack of an unknown topic": {"status": 40013, "entries": [40013]},
    },
    "milder than Apache's: nothing is acknowledged by it": {
        "ack nothing": {"status": 20000},
    },
}
"""Our answers by reason and case."""
