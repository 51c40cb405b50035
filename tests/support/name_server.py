"""A name server without a socket, and a remote broker that registers with it."""

from collections.abc import Mapping
from pathlib import Path

from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.name_server.advertisement import ALONE
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.processors import NameServiceProcessors
from rockhopper.broker.name_server.route_table import RouteTable
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Clock, Peer

REMOTE = Peer("10.0.0.2")
FIELDS = {
    "brokerName": "broker-b",
    "brokerAddr": "10.0.0.2:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.2:10912",
    "brokerId": "0",
}
# Written by fastjson in a Java broker, shortened to two topics.
BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":2,'
    b'"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"TBW102":{"attributes":{},'
    b'"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TBW102",'
    b'"topicSysFlag":0,"writeQueueNums":8},"orders":{"attributes":{},"order":false,"perm":6,'
    b'"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,'
    b'"writeQueueNums":4}}}}'
)


class NameServer:
    """A name server without a socket."""

    def __init__(
        self, directory: Path, config: BrokerConfig, *, with_broker: bool, clock: Clock
    ) -> None:
        self.advertisement = ALONE
        """The state of its broker in a replica set; a test may change it."""
        self.config = config
        self.clock = clock
        self.topics = TopicTable(directory / "topics.json", config, now_ms=clock)
        self.topics.seed_system_topics()
        local = None
        advertiser = Advertiser(
            config.advertise, broker_ip1=config.broker_ip1, port=config.listen_port
        )
        if with_broker:
            local = EmbeddedBroker(
                config.cluster_name,
                config.broker_name,
                "our-instance",
                topics=self.topics,
                permission=lambda: config.live.broker_permission,
                address_for=lambda connection: advertiser.address_for(
                    connection.addresses.peer_host, connection.addresses.local_host
                ),
                advertisement=lambda: self.advertisement,
            )
        self.routes = RouteTable(local=local)
        self.values = KeyValueTable(directory / "kvConfig.json")
        self.processors = NameServiceProcessors(
            config,
            self.routes,
            self.values,
            local=local,
            now_ms=clock,
        )
        self.dispatcher = Dispatcher(self.processors.table(), AccessRules(remote_admin=False))

    def ask(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        peer: Peer | None = None,
        version: int = 479,
    ) -> Command:
        request = Command(code=code, opaque=7, ext=dict(ext or {}), body=body, version=version)
        answer = self.dispatcher.dispatch((peer or Peer()).connection, request)
        ((serialize_type, header, answer_body),) = FrameDecoder().feed(answer)
        return decode_header(serialize_type, header, answer_body)

    async def ask_long(
        self, code: int, ext: Mapping[str, str], body: bytes, *, peer: Peer | None = None
    ) -> Command:
        """Send a request that is not answered at once."""
        peer = peer or Peer()
        request = Command(code=code, opaque=7, ext=dict(ext), body=body)
        assert self.dispatcher.dispatch(peer.connection, request) == b""
        await peer.answered.wait()
        ((serialize_type, header, answer_body),) = FrameDecoder().feed(b"".join(peer.written))
        return decode_header(serialize_type, header, answer_body)

    def register(self, **fields: str) -> Command:
        return self.ask(RequestCode.REGISTER_BROKER, FIELDS | fields, BODY, peer=REMOTE)
