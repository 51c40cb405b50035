"""The permissions that requests of sinks need."""

from rockhopper.broker.features.sinks.processors import SINK, STAGED_TOPICS
from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.server.remoting.permissions import Permission
from rockhopper.protocol.bodies.sinks import SinkMessage, encode_sink_body
from rockhopper.protocol.command import Command
from tests.support.peers import Peer


def names(permission: Permission, body: bytes = b"", **ext: str) -> set[str]:
    return set(permission.names(Request(Peer().connection, Command(1, ext=ext, body=body))))


def test_each_topic_of_a_staged_part_is_named_once() -> None:
    messages = [SinkMessage(topic, 0, 0, 0, "", b"x") for topic in ("orders", "bills", "orders")]
    assert names(STAGED_TOPICS, encode_sink_body(messages)) == {"orders", "bills"}
    assert names(SINK, sinkId="nightly") == {"nightly"}
