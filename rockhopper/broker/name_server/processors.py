"""The requests that a name server answers, with one processor each, and their table.

RocketMQ: ClientRequestProcessor (105) and DefaultRequestProcessor. Route bodies are compact JSON
without true, false and null, because some clients have their own JSON parsers.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING

from rockhopper.broker.kernel.tables.json_table import TableVersion
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.advertisement import MASTER_ID
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.registering import RegistrationReader, check_lengths
from rockhopper.broker.name_server.registration import INSTANCE_FIELD
from rockhopper.broker.name_server.route_table import (
    TOPICS_PER_STEP,
    Accepted,
    BrokerAddresses,
    Registration,
    Route,
    RouteTable,
)
from rockhopper.broker.name_server.shared_accounts import SharedAccounts
from rockhopper.broker.name_server.sharing import CREATES_FIELD, TopicSharing
from rockhopper.broker.name_server.values.kv_config import ORDER_TOPIC_NAMESPACE, KeyValueTable
from rockhopper.broker.name_server.values.saved_answers import SavedAnswers
from rockhopper.broker.server.loop.cooperative_work import (
    run_at_once,
    run_in_slices,
    sort_in_pieces,
)
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
    serves,
)
from rockhopper.broker.server.remoting.json_bodies import (
    SHORT_BODY_SIZE_BYTES_MAX,
    check_size,
    long_json_response,
)
from rockhopper.broker.server.remoting.permissions import (
    ALL_TOPICS,
    CHANGE_CLUSTER,
    SEE_CLUSTER,
    on_topic,
)
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.broker_config import BrokerConfig, NameServiceConfig
from rockhopper.broker.settings.config_file import properties_of
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import NoPermission, Refusal, TopicNotFound
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol import fastjson
from rockhopper.protocol.addresses import is_loopback, join_address, split_address
from rockhopper.protocol.bodies import topics as bodies
from rockhopper.protocol.bodies.properties_text import encode_properties_text
from rockhopper.protocol.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupBody,
    QueueData,
    TopicRouteData,
)
from rockhopper.protocol.bodies.topics import KVTable, TopicList
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import (
    BrokerHeartbeatRequest,
    BrokerIdentityRequest,
    DeleteTopicFromNamesrvRequest,
    GetRouteInfoRequest,
    KVConfigRequest,
    KVConfigResponse,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicRequest,
    encode_fields,
)

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.connection import RemotingConnection

VERSION_WITH_STANDARD_JSON = 401
VERSION_WITH_ACTING_MASTER = 413
"""RocketMQ 5.0.0.

A Rust client rejects routes without enableActingMaster, and an older Python client rejects routes
with it.
"""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2
TOPIC_FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class Neighbours:
    """Replaces loopback addresses of brokers for clients on other machines.

    A broker on the machine of its name server may have registered over the loopback interface, with
    an address that other machines cannot reach. Its address is then replaced like the embedded
    broker's: by the rules of ``advertise``, by brokerIP1, or by the address at which the client
    reached the name server.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._advertiser = Advertiser(
            config.advertise, broker_ip1=config.broker_ip1, port=config.listen_port
        )

    def list_reachable(
        self, connection: Peer, members: Iterable[BrokerAddresses], own: str = ""
    ) -> list[BrokerAddresses]:
        """Return *members* with the addresses at which the client at *connection* can reach them.

        *own* is the address of the broker in this process, which is already correct.
        """
        if is_loopback(connection.addresses.local_host):
            return list(members)
        return [
            dataclasses.replace(
                member,
                addresses={
                    broker_id: address if address == own else self._address(connection, address)
                    for broker_id, address in member.addresses.items()
                },
            )
            for member in members
        ]

    def _address(self, connection: Peer, address: str) -> str:
        host, port = split_address(address)
        if not is_loopback(host):
            return address
        return self._advertiser.address_for(
            connection.addresses.peer_host, connection.addresses.local_host, port
        )


class NameServiceProcessors:
    """Answers requests from the tables of one name server."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: RouteTable,
        values: KeyValueTable,
        *,
        local: EmbeddedBroker | None,
        now_ms: Callable[[], int],
        accounts: SharedAccounts | None = None,
    ) -> None:
        self._config = config
        self._routes = routes
        self._values = values
        self._local = local
        self._now_ms = now_ms
        self._as_reached = Neighbours(config).list_reachable
        self._registrations = RegistrationReader()
        self._saved = SavedAnswers(values)
        self._accounts = accounts
        self.sharing = TopicSharing(routes, local)

    def table(self) -> Mapping[int, Row]:
        """Return the processors by request code."""
        shared = self._accounts
        return {
            **(
                {}
                if shared is None
                else {RequestCode.SHARE_ACCOUNTS: serves(shared.share, CHANGE_CLUSTER)}
            ),
            RequestCode.PUT_KV_CONFIG: administers(self.put_value, CHANGE_CLUSTER),
            RequestCode.GET_KV_CONFIG: serves(self.get_value, SEE_CLUSTER),
            RequestCode.DELETE_KV_CONFIG: administers(self.delete_value, CHANGE_CLUSTER),
            RequestCode.REGISTER_BROKER: serves(self.register, CHANGE_CLUSTER),
            RequestCode.UNREGISTER_BROKER: serves(self.unregister, CHANGE_CLUSTER),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: serves(
                self.route, on_topic(Action.PUB, Action.SUB, Action.GET)
            ),
            RequestCode.GET_BROKER_CLUSTER_INFO: serves(self.cluster_info, SEE_CLUSTER),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: administers(self.wipe_write, CHANGE_CLUSTER),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: serves(self.all_topics, SEE_CLUSTER),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: administers(self.delete_topic, CHANGE_CLUSTER),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: serves(self.register_topic, CHANGE_CLUSTER),
            RequestCode.GET_KVLIST_BY_NAMESPACE: serves(self.values_of_namespace, SEE_CLUSTER),
            RequestCode.GET_TOPICS_BY_CLUSTER: serves(self.topics_of_cluster, ALL_TOPICS),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: serves(self.system_topics, SEE_CLUSTER),
            RequestCode.GET_UNIT_TOPIC_LIST: serves(self.unit_topics, SEE_CLUSTER),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: serves(self.unit_sub_topics, SEE_CLUSTER),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: serves(
                self.unit_sub_ununit_topics, SEE_CLUSTER
            ),
            RequestCode.UPDATE_NAMESRV_CONFIG: administers(self.update_config, CHANGE_CLUSTER),
            RequestCode.GET_NAMESRV_CONFIG: administers(self.get_config, SEE_CLUSTER),
            RequestCode.QUERY_DATA_VERSION: serves(self.query_version, SEE_CLUSTER),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: administers(self.add_write, CHANGE_CLUSTER),
            RequestCode.GET_BROKER_MEMBER_GROUP: serves(self.member_group, SEE_CLUSTER),
            RequestCode.BROKER_HEARTBEAT: serves(self.heartbeat, CHANGE_CLUSTER),
            RequestCode.SHARE_TOPIC: serves(self.sharing.share, CHANGE_CLUSTER),
        }

    def route(self, request: Request) -> Response | Awaitable[Response]:
        """105: return a topic's queues, with addresses that the client can reach."""
        fields = request.fields(GetRouteInfoRequest)
        topic = fields.topic
        if self._local is not None and self._local.advertisement().is_leading:
            self._local.create_on_lookup(topic)
        elif self.sharing.may_create(topic) and self._routes.route(topic, "") is None:
            return self._route_when_created(request, fields)
        return self._route(request, fields)

    async def _route_when_created(self, request: Request, fields: GetRouteInfoRequest) -> Response:
        await self.sharing.created(fields.topic)
        return self._route(request, fields)

    def _route(self, request: Request, fields: GetRouteInfoRequest) -> Response:
        topic = fields.topic
        own = self._local_address(request)
        route = self._routes.route(topic, own)
        if route is None:
            raise TopicNotFound(
                f"No topic route info in name server for the topic: {topic}\n{TOPIC_FAQ}"
            )
        if (fields.zone_mode or "").lower() == "true" and fields.zone_name:
            route = _filter_zone(route, fields.zone_name)
        is_standard = (
            request.version >= VERSION_WITH_STANDARD_JSON or fields.accept_standard_json_only
        )
        body = TopicRouteData(
            queue_datas=[QueueData(*queues) for queues in route.queues],
            broker_datas=[
                _broker_data(member)
                for member in self._as_reached(request.connection, route.members, own)
            ],
            order_topic_conf=self._order_of(topic),
            topic_queue_mapping_by_broker=dict(route.mappings) or None,
        )
        with_acting_master = request.version >= VERSION_WITH_ACTING_MASTER
        return Response(
            body=body.encode(raw_keys=not is_standard, with_acting_master=with_acting_master)
        )

    def _order_of(self, topic: str) -> str | None:
        if not self._settings.order_message_enable:
            return None
        return self._values.get(ORDER_TOPIC_NAMESPACE, topic)

    def cluster_info(self, request: Request) -> Response:
        """106: return every broker by name and cluster, and those that have disappeared."""
        members = self._members(request)
        body = ClusterInfo(
            {member.name: _broker_data(member) for member in members},
            departed_brokers=self._routes.departed or None,
            departed_ages_ms=self._routes.list_departed_ages_ms(self._now_ms()) or None,
        )
        for member in members:
            body.cluster_addr_table.setdefault(member.cluster, []).append(member.name)
        return Response(body=body.encode())

    def member_group(self, request: Request) -> Response:
        """901: return the addresses of one broker name."""
        cluster, name = _field(request, "clusterName"), _field(request, "brokerName")
        group = BrokerMemberGroup(cluster, name)
        for member in self._members(request):
            if (member.cluster, member.name) == (cluster, name):
                group.broker_addrs = member.addresses
        return Response(body=GetBrokerMemberGroupBody(group).encode())

    def _members(self, request: Request) -> list[BrokerAddresses]:
        own = self._local_address(request)
        return self._as_reached(request.connection, self._routes.members(own), own)

    def _local_address(self, request: Request) -> str:
        return self._local.address_for(request.connection) if self._local is not None else ""

    def register(self, request: Request) -> Response | Awaitable[Response | None]:
        """103: register a remote broker with its topics."""
        fields = request.fields(RegisterBrokerRequest)
        if self._is_local(request, fields):
            return Response(ext={}, body=self._order_topics())
        return self._registrations.read(
            request, fields, lambda registration: self._register(request, registration)
        )

    def _register(
        self, request: Request, registration: Registration
    ) -> Generator[None, None, Response]:
        connection = request.connection
        self._watch(connection)
        steps = self._routes.register_in_steps(registration, self._now_ms(), connection)
        accepted = yield from steps
        if accepted is None:
            raise Refusal("register broker failed")
        is_master = registration.broker_id == MASTER_ID
        creates = request.ext.get(CREATES_FIELD) if is_master and not connection.closed else None
        self.sharing.registered(connection, registration.cluster, registration.name, creates)
        if self._local is not None and registration.name == self._local.name:
            accepted = self._find_master_address(self._local, request, accepted)
        response = RegisterBrokerResponse(
            ha_server_addr=accepted.master_ha_address, master_addr=accepted.master_address
        )
        return Response(ext=encode_fields(response), body=self._order_topics())

    def _find_master_address(
        self, local: EmbeddedBroker, request: Request, accepted: Accepted
    ) -> Accepted:
        """Return the address at which a slave can follow the broker in this process."""
        port = local.advertisement().slaves_port
        if not port:
            return accepted
        address = local.address_for(request.connection)
        return Accepted(address, join_address(split_address(address)[0], port))

    def _order_topics(self) -> bytes:
        values = self._values.namespace(ORDER_TOPIC_NAMESPACE)
        return KVTable(values).encode() if values else b""

    def _is_local(self, request: Request, fields: RegisterBrokerRequest) -> bool:
        """Return whether the registration is from this process's broker, which is always known."""
        local = self._local
        if local is None:
            return False
        if request.ext.get(INSTANCE_FIELD) == local.instance:
            return True
        advertisement = local.advertisement()
        is_slave = fields.broker_id != MASTER_ID and advertisement.shares_name
        if fields.broker_name == local.name and not (advertisement.is_in_set or is_slave):
            raise Refusal(
                f"brokerName {local.name} belongs to the broker that runs this name server: "
                "give the other broker its own name"
            )
        return False

    def _watch(self, connection: "RemotingConnection") -> None:
        if "registered" not in connection.attributes:
            connection.attributes["registered"] = True
            connection.on_close.append(self._routes.connection_lost)

    def unregister(self, request: Request) -> Response:
        """104: unregister a remote broker that stops."""
        fields = request.fields(BrokerIdentityRequest)
        self._routes.unregister(fields.cluster_name, fields.broker_addr, request.connection)
        return Response()

    def query_version(self, request: Request) -> Response:
        """322: return whether a remote broker has to register again."""
        fields = request.fields(BrokerIdentityRequest)
        check_size(request.body, SHORT_BODY_SIZE_BYTES_MAX)
        asked = _version(bodies.DataVersion.decode(request.body or b"{}"))
        changed, known = self._routes.query_version(
            fields.cluster_name, fields.broker_addr, asked, self._now_ms()
        )
        return Response(
            ext=encode_fields(QueryDataVersionResponse(changed=changed)),
            body=fastjson.dumps(known.to_json()).encode() if known is not None else b"",
        )

    def heartbeat(self, request: Request) -> Response:
        """904: record a heartbeat of a remote broker."""
        fields = request.fields(BrokerHeartbeatRequest)
        self._routes.heartbeat(fields.cluster_name, fields.broker_addr, self._now_ms())
        return Response()

    def register_topic(self, request: Request) -> Response:
        """217: register one topic of registered brokers."""
        topic = request.fields(TopicRequest).topic
        check_lengths((topic,))
        check_size(request.body, SHORT_BODY_SIZE_BYTES_MAX)
        for queues in TopicRouteData.decode(request.body or b"{}").queue_datas:
            self._routes.add_topic(
                queues.broker_name,
                TopicConfig(
                    topic,
                    read_queue_nums=queues.read_queue_nums,
                    write_queue_nums=queues.write_queue_nums,
                    perm=queues.perm,
                    sys_flag=queues.topic_sys_flag,
                ),
            )
        return Response()

    def all_topics(self, request: Request) -> Response | Awaitable[Response]:
        """206: return every topic."""
        if not self._settings.all_topic_list_enable:
            raise Refusal("disable")
        return self._topic_list(self._routes.topic_names())

    def topics_of_cluster(self, request: Request) -> Response | Awaitable[Response]:
        """224: return the topics of one cluster."""
        self._check_lists_enabled()
        return self._topic_list(self._routes.topic_names(_field(request, "cluster")))

    def unit_topics(self, request: Request) -> Response | Awaitable[Response]:
        """311: return topics with the unit flag."""
        return self._topics_by_flag(lambda flag: bool(flag & UNIT_FLAG))

    def unit_sub_topics(self, request: Request) -> Response | Awaitable[Response]:
        """312: return topics with the unit subscription flag."""
        return self._topics_by_flag(lambda flag: bool(flag & UNIT_SUB_FLAG))

    def unit_sub_ununit_topics(self, request: Request) -> Response | Awaitable[Response]:
        """313: return topics with the unit subscription flag and without the unit flag."""
        return self._topics_by_flag(
            lambda flag: bool(flag & UNIT_SUB_FLAG) and not flag & UNIT_FLAG
        )

    def _topics_by_flag(self, is_wanted: Callable[[int], bool]) -> Response | Awaitable[Response]:
        self._check_lists_enabled()
        return self._topic_list(
            self._routes.topic_names(wanted=lambda data: is_wanted(data.sys_flag))
        )

    def _topic_list(self, steps: Generator[None, None, set[str]]) -> Response | Awaitable[Response]:
        if self._routes.topic_count > TOPICS_PER_STEP:
            return _long_topic_list(steps)
        return Response(body=TopicList(sorted(run_at_once(steps))).encode())

    def _check_lists_enabled(self) -> None:
        if not self._settings.topic_list_enable:
            raise Refusal("disable")

    def system_topics(self, request: Request) -> Response:
        """304: return the system topics.

        The answer also has the names of clusters and brokers, and an address for more queries.
        """
        members = self._routes.members(self._local_address(request))
        names = {member.cluster for member in members} | {member.name for member in members}
        addresses = [address for member in members for address in member.addresses.values()]
        return Response(body=TopicList(sorted(names), addresses[0] if addresses else None).encode())

    def delete_topic(self, request: Request) -> Response:
        """216: remove a topic's route; its brokers receive their own request (215)."""
        fields = request.fields(DeleteTopicFromNamesrvRequest)
        self._routes.delete_topic(fields.topic, fields.cluster_name or None)
        return Response()

    def wipe_write(self, request: Request) -> Response:
        """205: stop producers from sending to a broker."""
        count = self._routes.set_write_wiped(_field(request, "brokerName"), wiped=True)
        return Response(ext={"wipeTopicCount": str(count)})

    def add_write(self, request: Request) -> Response:
        """327: allow producers to send to a broker again."""
        count = self._routes.set_write_wiped(_field(request, "brokerName"), wiped=False)
        return Response(ext={"addTopicCount": str(count)})

    def put_value(self, request: Request) -> Response | None:
        """100: store a value for operators' tools."""
        fields = request.fields(KVConfigRequest)
        if fields.key is None or fields.value is None:
            raise FieldError(
                "key" if fields.key is None else "value", "is missing", is_missing=True
            )
        self._saved.check_room()
        self._values.set_value(fields.namespace, fields.key, fields.value)
        return self._saved.answer(request)

    def get_value(self, request: Request) -> Response:
        """101: return one value."""
        fields = request.fields(KVConfigRequest)
        value = self._values.get(fields.namespace, fields.key or "")
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {fields.namespace} Key: {fields.key}",
            )
        return Response(ext=encode_fields(KVConfigResponse(value=value)))

    def delete_value(self, request: Request) -> Response | None:
        """102: delete a value."""
        fields = request.fields(KVConfigRequest)
        self._saved.check_room()
        self._values.delete(fields.namespace, fields.key or "")
        return self._saved.answer(request)

    def values_of_namespace(self, request: Request) -> Response:
        """219: return all values of a namespace."""
        namespace = request.fields(KVConfigRequest).namespace
        values = self._values.namespace(namespace)
        if not values:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return Response(body=KVTable(values).encode())

    def update_config(self, request: Request) -> Response:
        """318: refuse, because no setting can be changed remotely."""
        raise NoPermission(
            "Can not update config in black list. The name server reads its settings from "
            "broker.conf, the environment and flags when it starts"
        )

    def get_config(self, request: Request) -> Response:
        """319: return the settings."""
        properties = properties_of(self._config)
        return Response(body=encode_properties_text(properties))

    @property
    def _settings(self) -> NameServiceConfig:
        return self._config.name_service


def _field(request: Request, name: str) -> str:
    value = request.ext.get(name)
    if value is None:
        raise FieldError(name, "is missing", is_missing=True)
    return value


async def _long_topic_list(steps: Generator[None, None, set[str]]) -> Response:
    names = await run_in_slices(steps)
    return await long_json_response(lambda: TopicList(sort_in_pieces(names)))


def _broker_data(member: BrokerAddresses) -> BrokerData:
    return BrokerData(
        member.name, member.addresses, member.cluster, member.zone, member.acting_master
    )


def _version(version: bodies.DataVersion) -> TableVersion:
    return TableVersion(version.counter, version.timestamp, version.state_version)


def _filter_zone(route: Route, zone: str) -> Route:
    """Return the part of *route* in a zone, and broker names without a master in any zone."""
    members = [
        member
        for member in route.members
        if 0 not in member.addresses or (member.zone or "").lower() == zone.lower()
    ]
    names = {member.name for member in members}
    queues = [queues for queues in route.queues if queues.broker_name in names]
    mappings = {name: found for name, found in route.mappings.items() if name in names}
    return Route(queues, members, mappings)
