"""Calls that say by their status codes what an endpoint takes: the corpus of status_codes.py.

A case is an RPC and its request, written as protobuf's constructors take it. Where a handle or a
transaction has to be there first, the request is a function of it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Request = Mapping[str, Any]

NORMAL, FIFO, DELAY, TRANSACTION = range(1, 5)
TAG, SQL = 1, 2

TOPICS = {
    "sc-normal": "NORMAL",
    "sc-fifo": "FIFO",
    "sc-delay": "DELAY",
    "sc-transaction": "TRANSACTION",
    "sc-mixed": "MIXED",
    "sc-empty": "NORMAL",
    "sc-handles": "NORMAL",
}
GROUP, FIFO_GROUP = "sc-group", "sc-fifo-group"
MAX_BODY = 4 << 20
HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Case:
    """One call."""

    rpc: str
    request: Request | Callable[[Any], Request] | bytes
    client: str | None = "producer"
    """Whose client id it carries: of one with settings, of none that is known, or none."""
    needs: str = ""
    """What the request is a function of: a `handle`, a `transaction` or a `recall` handle."""
    timeout_s: float = 20.0
    language: str = "JAVA"


def named(name: str) -> Request:
    """A topic or group."""
    return {"name": name}


def message(topic: str | None = "sc-normal", body: bytes = b"x", **system: Any) -> Request:
    """A message; *system* properties replace those that every message has."""
    made: dict[str, Any] = {
        "body": body,
        "user_properties": system.pop("user", {}),
        "system_properties": {
            "message_id": "01000000000000000000000000000000AB",
            "message_type": NORMAL,
            "born_timestamp": {"seconds": 1_700_000_000},
            **system,
        },
    }
    return made if topic is None else {"topic": named(topic), **made}


def at(seconds: float) -> Request:
    """A timestamp so far ahead."""
    return {"seconds": int(time.time() + seconds)}


def _send(*messages: Request, **options: Any) -> Case:
    return Case("SendMessage", {"messages": list(messages)}, **options)


def _sends() -> dict[str, Case]:
    return {
        "normal": _send(message()),
        "fifo": _send(message("sc-fifo", message_type=FIFO, message_group="g")),
        "delay": _send(message("sc-delay", message_type=DELAY, delivery_timestamp=at(60))),
        "transaction": _send(message("sc-transaction", message_type=TRANSACTION)),
        "mixed, normal": _send(message("sc-mixed")),
        "mixed, fifo": _send(message("sc-mixed", message_type=FIFO, message_group="g")),
        "mixed, delay": _send(message("sc-mixed", message_type=DELAY, delivery_timestamp=at(60))),
        "two messages": _send(message(), message()),
        "no message": _send(),
        "two topics": _send(message(), message("sc-mixed")),
        "no client id": _send(message(), client=None),
        "no settings before": _send(message(), client="stranger"),
        "unknown language": _send(message(), language="KLINGON"),
        "no system properties": Case(
            "SendMessage", {"messages": [{"topic": named("sc-normal"), "body": b"x"}]}
        ),
        "blank message id": _send(message(message_id=" ")),
        "absent message id": _send(message(message_id="")),
        "body of nothing": _send(message(body=b"")),
        "largest body": _send(message(body=bytes(MAX_BODY))),
        "body too large": _send(message(body=bytes(MAX_BODY + 1))),
        "gzip that is none": _send(message(body_encoding=2)),
        "wrong digest": _send(message(body_digest={"type": 1, "checksum": "0"})),
        "bytes that are no request": Case("SendMessage", b"\xff\xff\xff"),
    }


def _send_topics() -> dict[str, Case]:
    names = {
        "blank": " ",
        "empty": "",
        "of 128 characters": "t" * 128,
        "of 127 characters": "t" * 127,
        "with a blank": "a b",
        "with a dollar": "a$b",
        "with a dot": "a.b",
        "not of ASCII": "tö",
        "of the system": "SCHEDULE_TOPIC_XXXX",
        "TBW102": "TBW102",
        "beginning rmq_sys_": "rmq_sys_x",
        "of transactions": "RMQ_SYS_TRANS_HALF_TOPIC",
        "for retries": f"%RETRY%{GROUP}",
        "of dead letters": f"%DLQ%{GROUP}",
        "unknown": "sc-nobody-made-this",
    }
    cases = {f"topic {what}": _send(message(name)) for what, name in names.items()}
    return {**cases, "topic absent": _send(message(None))}


def _send_properties() -> dict[str, Case]:
    system: dict[str, dict[str, Any]] = {
        "tag blank": {"tag": " "},
        "tag empty": {"tag": ""},
        "tag with a bar": {"tag": "a|b"},
        "tag with a control character": {"tag": "a\x01"},
        "tag not of ASCII": {"tag": "ä"},
        "key blank": {"keys": [" "]},
        "key empty": {"keys": [""]},
        "key with a control character": {"keys": ["a\x01"]},
        "key with a blank inside": {"keys": ["a b"]},
        "many keys": {"keys": [f"k{i}" for i in range(100)]},
        "trace context": {"trace_context": "00-0af7651916cd43dd8448eb211c80319c-01"},
        "delivery attempt": {"delivery_attempt": 3},
        "priority": {"priority": 1},
        "priority below zero": {"priority": -1},
        "lite topic": {"lite_topic": "lite"},
    }
    user: dict[str, dict[str, str]] = {
        "128 properties": {f"p{i}": "v" for i in range(128)},
        "129 properties": {f"p{i}": "v" for i in range(129)},
        "properties of 17 KiB": {"p": "v" * (17 << 10)},
        "properties of 15 KiB": {"p": "v" * (15 << 10)},
        "property TAGS": {"TAGS": "v"},
        "property KEYS": {"KEYS": "v"},
        "property UNIQ_KEY": {"UNIQ_KEY": "v"},
        "property DELAY": {"DELAY": "3"},
        "property __SHARDINGKEY": {"__SHARDINGKEY": "v"},
        "property TRAN_MSG": {"TRAN_MSG": "true"},
        "property TIMER_DELIVER_MS": {"TIMER_DELIVER_MS": "1"},
        "property without a name": {"": "v"},
        "property with a blank name": {" ": "v"},
        "property name with a control character": {"a\x01": "v"},
        "property value with a control character": {"a": "v\x01"},
        "property value of nothing": {"a": ""},
    }
    return {
        **{what: _send(message(**properties)) for what, properties in system.items()},
        **{what: _send(message(user=properties)) for what, properties in user.items()},
    }


def _send_types() -> dict[str, Case]:
    def fifo(topic: str, group: str = "g") -> Case:
        return _send(message(topic, message_type=FIFO, message_group=group))

    def delay(topic: str, seconds: float = 60) -> Case:
        return _send(message(topic, message_type=DELAY, delivery_timestamp=at(seconds)))

    def recovered(seconds: int) -> Case:
        recovery: dict[str, Any] = {"orphaned_transaction_recovery_duration": {"seconds": seconds}}
        return _send(message("sc-transaction", message_type=TRANSACTION, **recovery))

    return {
        "fifo to a normal topic": fifo("sc-normal"),
        "fifo to a delay topic": fifo("sc-delay"),
        "delay to a normal topic": delay("sc-normal"),
        "delay to a fifo topic": delay("sc-fifo"),
        "transaction to a normal topic": _send(message(message_type=TRANSACTION)),
        "normal to a fifo topic": _send(message("sc-fifo")),
        "normal to a delay topic": _send(message("sc-delay")),
        "normal to a transaction topic": _send(message("sc-transaction")),
        "fifo by its type alone": _send(message(message_type=FIFO)),
        "delay by its type alone": _send(message("sc-delay", message_type=DELAY)),
        "type unspecified": _send(message(message_type=0)),
        "type of the future": _send(message(message_type=77)),
        "message group blank": fifo("sc-fifo", " "),
        "message group empty": fifo("sc-fifo", ""),
        "message group of 63 bytes": fifo("sc-fifo", "g" * 63),
        "message group of 64 bytes": fifo("sc-fifo", "g" * 64),
        "message group with a control character": fifo("sc-fifo", "g\x01"),
        "delivery in the past": delay("sc-delay", -60),
        "delivery in 23 hours": delay("sc-delay", 23 * HOUR_S),
        "delivery in two days": delay("sc-delay", 48 * HOUR_S),
        "recovery in half an hour": recovered(1800),
        "recovery in two hours": recovered(7200),
        "fifo and delay": _send(
            message("sc-mixed", message_group="g", delivery_timestamp=at(60), message_type=DELAY)
        ),
    }


ENDPOINTS = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": 8081}]}


def _routes() -> dict[str, Case]:
    def route(topic: str, **options: Any) -> Case:
        request = {"topic": named(topic), "endpoints": ENDPOINTS}
        return Case("QueryRoute", request, **options)

    def assigned(topic: str, group: str, **options: Any) -> Case:
        request = {"topic": named(topic), "group": named(group), "endpoints": ENDPOINTS}
        return Case("QueryAssignment", request, client="consumer", **options)

    return {
        "route": route("sc-normal"),
        "route of an unknown topic": route("sc-nobody-made-this"),
        "route of a blank topic": route(" "),
        "route of an illegal topic": route("a b"),
        "route of a topic of the system": route("SCHEDULE_TOPIC_XXXX"),
        "route without client id": route("sc-normal", client=None),
        "route for a stranger": route("sc-normal", client="stranger"),
        "route without endpoints": Case("QueryRoute", {"topic": named("sc-normal")}),
        "route of nothing": Case("QueryRoute", {}),
        "assignment": assigned("sc-normal", GROUP),
        "assignment to a fifo group": assigned("sc-fifo", FIFO_GROUP),
        "assignment of an unknown topic": assigned("sc-nobody-made-this", GROUP),
        "assignment to an unknown group": assigned("sc-normal", "sc-no-such-group"),
        "assignment to a blank group": assigned("sc-normal", " "),
        "assignment to a group of 121 characters": assigned("sc-normal", "g" * 121),
        "assignment to a group of the system": assigned("sc-normal", "CID_RMQ_SYS_X"),
        "assignment of nothing": Case("QueryAssignment", {}, client="consumer"),
    }


def _clients() -> dict[str, Case]:
    def beat(client: str | None, kind: int, group: str | None = None) -> Case:
        request: dict[str, Any] = {"client_type": kind}
        if group is not None:
            request["group"] = named(group)
        return Case("Heartbeat", request, client=client)

    return {
        "heartbeat of a producer": beat("producer", 1),
        "heartbeat of a consumer": beat("consumer", 3, GROUP),
        "heartbeat with a blank group": beat("consumer", 3, " "),
        "heartbeat of a consumer without group": beat("consumer", 3),
        "heartbeat before settings": beat("stranger", 1),
        "heartbeat without client id": beat(None, 1),
        "heartbeat without a type": beat("producer", 0),
        "heartbeat of a pull consumer": beat("consumer", 4, GROUP),
        "termination before settings": Case("NotifyClientTermination", {}, client="stranger"),
        "termination without client id": Case("NotifyClientTermination", {}, client=None),
    }


def received(**changes: Any) -> Request:
    """A request for messages of a topic that has none."""
    made: dict[str, Any] = {
        "group": named(GROUP),
        "message_queue": {"topic": named("sc-empty"), "id": 0, "broker": {"name": "BROKER"}},
        "filter_expression": {"type": TAG, "expression": "*"},
        "batch_size": 1,
        "invisible_duration": {"seconds": 30},
        "long_polling_timeout": {"seconds": 5},
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def _receives() -> dict[str, Case]:
    def receive(timeout_s: float = 20.0, client: str | None = "consumer", **changes: Any) -> Case:
        return Case("ReceiveMessage", received(**changes), client=client, timeout_s=timeout_s)

    def of(topic: str, queue_id: int = 0, broker: str = "BROKER") -> Case:
        queue = {"topic": named(topic), "id": queue_id, "broker": {"name": broker}}
        return receive(message_queue=queue)

    def filtered(kind: int, expression: str) -> Case:
        return receive(filter_expression={"type": kind, "expression": expression})

    return {
        "receive nothing": receive(),
        "receive without client id": receive(client=None),
        "receive before settings": receive(client="stranger"),
        "receive for a blank group": receive(group=named(" ")),
        "receive for no group": receive(group=None),
        "receive for an illegal group": receive(group=named("a b")),
        "receive for a group of the system": receive(group=named("CID_RMQ_SYS_X")),
        "receive from an unknown topic": of("sc-nobody-made-this"),
        "receive from a blank topic": of(" "),
        "receive from a topic of the system": of("SCHEDULE_TOPIC_XXXX"),
        "receive from every queue": of("sc-empty", -1),
        "receive invisible for 9 s": receive(invisible_duration={"seconds": 9}),
        "receive invisible for 10 s": receive(invisible_duration={"seconds": 10}),
        "receive invisible for 12 h": receive(invisible_duration={"seconds": 12 * HOUR_S}),
        "receive invisible for 13 h": receive(invisible_duration={"seconds": 13 * HOUR_S}),
        "receive invisible for nothing": receive(invisible_duration=None),
        "receive with renewal": receive(invisible_duration=None, auto_renew=True),
        "receive polling longer than the deadline": receive(
            timeout_s=4, long_polling_timeout={"seconds": 19}
        ),
        "receive without a polling time": receive(timeout_s=8, long_polling_timeout=None),
        "receive by tags": filtered(TAG, "a || b"),
        "receive by a tag that is none": filtered(TAG, ""),
        "receive by SQL": filtered(SQL, "a = 1"),
        "receive by broken SQL": filtered(SQL, "a = = 1"),
        "receive by an unspecified filter": filtered(0, "*"),
        "receive without a filter": receive(filter_expression=None),
        "receive a batch of 0": receive(batch_size=0),
        "receive a batch of 100": receive(batch_size=100),
    }


def expired(handle: str) -> str:
    """The same handle, popped a day ago."""
    fields = handle.split(" ")
    fields[1] = str(int(fields[1]) - 24 * HOUR_S * 1000)
    return " ".join(fields)


GARBAGE_HANDLES = {"garbage": "not a handle", "blank": " ", "short": "1 2 3", "letters": "a " * 9}


def _acks() -> dict[str, Case]:
    def entry(handle: str) -> Request:
        return {"message_id": "ID", "receipt_handle": handle}

    def ack(*handles: str, group: str = GROUP, topic: str = "sc-handles") -> Request:
        entries = [entry(handle) for handle in handles]
        return {"group": named(group), "topic": named(topic), "entries": entries}

    def case(request: Callable[[str], Request]) -> Case:
        return Case("AckMessage", request, client="consumer", needs="handle")

    cases = {
        "ack": case(ack),
        "ack an expired handle": case(lambda handle: ack(expired(handle))),
        "ack a good and a bad one": case(lambda handle: ack(handle, "not a handle")),
        "ack the same twice": case(lambda handle: ack(handle, handle)),
        "ack for an unknown group": case(lambda handle: ack(handle, group="sc-no-such-group")),
        "ack for a blank group": case(lambda handle: ack(handle, group=" ")),
        "ack for a blank topic": case(lambda handle: ack(handle, topic=" ")),
        "ack of another topic": case(lambda handle: ack(handle, topic="sc-mixed")),
        "ack of an unknown topic": case(lambda handle: ack(handle, topic="sc-nobody-made-this")),
        "ack nothing": Case("AckMessage", ack(), client="consumer"),
    }
    garbage = {
        f"ack a handle of {what}": Case("AckMessage", ack(handle), client="consumer")
        for what, handle in GARBAGE_HANDLES.items()
    }
    return {**cases, **garbage}


def _changes() -> dict[str, Case]:
    def change(handle: str, seconds: int | None = 30, **changes: Any) -> Request:
        made = {
            "group": named(GROUP),
            "topic": named("sc-handles"),
            "receipt_handle": handle,
            "message_id": "ID",
            **changes,
        }
        return made if seconds is None else {**made, "invisible_duration": {"seconds": seconds}}

    def case(request: Callable[[str], Request], rpc: str = "ChangeInvisibleDuration") -> Case:
        return Case(rpc, request, client="consumer", needs="handle")

    def forward(handle: str, **changes: Any) -> Request:
        return change(handle, None, delivery_attempt=2, max_delivery_attempts=2, **changes)

    def forwarded(request: Callable[[str], Request]) -> Case:
        return case(request, "ForwardMessageToDeadLetterQueue")

    cases = {
        "change": case(change),
        "change to nothing": case(lambda handle: change(handle, 0)),
        "change without a duration": case(lambda handle: change(handle, None)),
        "change to less than nothing": case(lambda handle: change(handle, -1)),
        "change to 12 h": case(lambda handle: change(handle, 12 * HOUR_S)),
        "change to 13 h": case(lambda handle: change(handle, 13 * HOUR_S)),
        "change an expired handle": case(lambda handle: change(expired(handle))),
        "change for a blank group": case(lambda handle: change(handle, group=named(" "))),
        "change for a blank topic": case(lambda handle: change(handle, topic=named(" "))),
        "forward": forwarded(forward),
        "forward an expired handle": forwarded(lambda handle: forward(expired(handle))),
        "forward for a blank group": forwarded(lambda handle: forward(handle, group=named(" "))),
        "forward for an unknown group": forwarded(
            lambda handle: forward(handle, group=named("sc-no-such-group"))
        ),
    }
    for what, handle in GARBAGE_HANDLES.items():
        cases[f"change a handle of {what}"] = Case(
            "ChangeInvisibleDuration", change(handle), client="consumer"
        )
        cases[f"forward a handle of {what}"] = Case(
            "ForwardMessageToDeadLetterQueue", forward(handle), client="consumer"
        )
    return cases


def _ends() -> dict[str, Case]:
    def end(transaction: str, resolution: int = 1, **changes: Any) -> Request:
        return {
            "topic": named("sc-transaction"),
            "message_id": "01000000000000000000000000000000AB",
            "transaction_id": transaction,
            "resolution": resolution,
            "source": 1,
            **changes,
        }

    def case(request: Callable[[str], Request]) -> Case:
        return Case("EndTransaction", request, needs="transaction")

    def recall(handle: str, topic: str = "sc-delay") -> Request:
        return {"topic": named(topic), "recall_handle": handle}

    return {
        "commit": case(end),
        "roll back": case(lambda transaction: end(transaction, 2)),
        "end without a resolution": case(lambda transaction: end(transaction, 0)),
        "end of a blank topic": case(lambda transaction: end(transaction, topic=named(" "))),
        "end of another topic": case(lambda transaction: end(transaction, topic=named("sc-mixed"))),
        "end without a message id": case(lambda transaction: end(transaction, message_id="")),
        "end of garbage": Case("EndTransaction", end("not a transaction")),
        "end of a blank transaction": Case("EndTransaction", end(" ")),
        "end without a transaction": Case("EndTransaction", end("")),
        "end without client id": Case("EndTransaction", end("x"), client=None),
        "recall": Case("RecallMessage", recall, needs="recall"),
        "recall garbage": Case("RecallMessage", recall("not a handle")),
        "recall nothing": Case("RecallMessage", recall("")),
        "recall from a normal topic": Case("RecallMessage", recall("x", "sc-normal")),
        "recall from a blank topic": Case("RecallMessage", recall("x", " ")),
        "recall from an unknown topic": Case("RecallMessage", recall("x", "sc-nobody-made-this")),
        "recall without client id": Case("RecallMessage", recall("x"), client=None),
    }


def _telemetry() -> dict[str, Case]:
    def settings(**content: Any) -> Case:
        return Case("Telemetry", {"settings": content}, client="newcomer")

    def publishing(*topics: str) -> Case:
        return settings(client_type=1, publishing={"topics": [named(topic) for topic in topics]})

    def subscribed(group: str, topic: str = "sc-normal", expression: str = "*") -> Case:
        entry = {"topic": named(topic), "expression": {"type": TAG, "expression": expression}}
        content = {"group": named(group), "subscriptions": [entry]}
        return settings(client_type=3, subscription=content)

    return {
        "settings of a producer": publishing("sc-normal"),
        "settings of a producer without topics": publishing(),
        "settings for an unknown topic": publishing("sc-nobody-made-this"),
        "settings for an illegal topic": publishing("a b"),
        "settings of a consumer": subscribed(GROUP),
        "settings of a consumer of an unknown group": subscribed("sc-no-such-group"),
        "settings of a consumer of a blank group": subscribed(" "),
        "settings of a consumer of an illegal topic": subscribed(GROUP, "a b"),
        "settings of nobody": settings(client_type=1),
        "settings without client id": Case(
            "Telemetry", {"settings": {"client_type": 1, "publishing": {}}}, client=None
        ),
        "telemetry of nothing": Case("Telemetry", {}, client="newcomer", timeout_s=5),
        "telemetry of a stack trace nobody asked for": Case(
            "Telemetry", {"thread_stack_trace": {"nonce": "x"}}, client="newcomer", timeout_s=5
        ),
    }


def _unimplemented() -> dict[str, Case]:
    return {f"{rpc} of nothing": Case(rpc, {}, client="consumer") for rpc in (*_OTHERS, "Bogus")}


_OTHERS = ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription")


def corpus() -> dict[str, Case]:
    """Every case, by name."""
    parts = (_sends(), _send_topics(), _send_properties(), _send_types(), _routes(), _clients())
    more = (_receives(), _acks(), _changes(), _ends(), _telemetry(), _unimplemented())
    return {name: case for part in (*parts, *more) for name, case in part.items()}
