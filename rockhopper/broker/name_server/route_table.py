"""RouteTable: which brokers serve which topics, by their registrations.

RocketMQ: RouteInfoManager. The table is only in memory: brokers register again every 30 s, and an
entry is removed if its broker falls silent or closes its connection. The broker in this process
does not register; the table reads its topics directly, so that a topic is routable the moment it
exists.

A broker name stands for a master (id 0) and its slaves; topics belong to the name. In a replica set
the epoch of a registration (stateVersion) shows which one is newer: a master of an earlier epoch
replaces no other. For the set of this process's broker, the broker's own view counts, completed by
the registrations of the other replicas.

    id 0 at A registers in epoch 4     A is the master
    id 0 at B registers in epoch 5     B replaces A
    id 0 at A registers in epoch 4     ignored: A was deposed
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, TableVersion
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.advertisement import MASTER_ID
from rockhopper.broker.name_server.embedded import EmbeddedBroker
from rockhopper.broker.name_server.served_topics import ServedTopics
from rockhopper.broker.server.loop.cooperative_work import run_at_once
from rockhopper.broker.users.errors import Refusal
from rockhopper.protocol.sys_flags import PERM_WRITE

log = structlog.get_logger("broker.nameserver")

TOPICS_PER_STEP = 512
DEPARTED_MAX = 1000
BROKERS_PER_CONNECTION_MAX = 100
BROKERS_MAX = 5_000
TOPICS_PER_CONNECTION_MAX = 200_000
TOPICS_MAX = 2_000_000
"""The total over all brokers; a topic counts once for each broker that has it."""


@dataclass(slots=True)
class Registration:
    """A broker's registration (request code 103)."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""
    timeout_ms: int | None = None
    zone: str | None = None
    acting_master: bool | None = None
    version: TableVersion = field(default_factory=TableVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    mappings: Mapping[str, JsonObject] = field(default_factory=dict)


class Accepted(NamedTuple):
    """The answer to a registration: the master's addresses, for a slave."""

    master_address: str | None = None
    master_ha_address: str | None = None


@dataclass(slots=True)
class BrokerAddresses:
    """One broker name, with its addresses by broker id."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    zone: str | None = None
    acting_master: bool = False


@dataclass(slots=True)
class _Live:
    """One registered broker process."""

    member: BrokerAddresses
    address: str
    ha_address: str
    version: TableVersion
    last_heard_ms: int
    timeout_ms: int
    connection: Any


class TopicQueues(NamedTuple):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    sys_flag: int


class Route(NamedTuple):
    """The queues of a topic, and the brokers that have them."""

    queues: list[TopicQueues]
    members: list[BrokerAddresses]
    mappings: Mapping[str, JsonObject] = {}


class RouteTable:
    """The tables of a name server. Pure: callers pass in times and connections."""

    def __init__(
        self,
        *,
        local: EmbeddedBroker | None = None,
        expiry_ms: int = 120_000,
        forget_missing_topics: bool = False,
    ) -> None:
        self._local = local
        self._expiry_ms = expiry_ms
        self._forget_missing_topics = forget_missing_topics
        self._members: dict[str, BrokerAddresses] = {}
        self._topics = ServedTopics()
        self._live: dict[tuple[str, str], _Live] = {}
        self._registered_over: dict[object, dict[tuple[str, str], _Live]] = {}
        self._write_wiped: set[str] = set()
        # When each departed broker was last heard.
        self._departed: dict[str, int] = {}

    @property
    def departed(self) -> list[str]:
        """Brokers that were registered and no longer are, in the order in which they left.

        They may have messages that no client can find meanwhile.
        """
        return list(self._departed)

    def list_departed_ages_ms(self, now_ms: int) -> dict[str, int]:
        """Return the time since each departed broker was last heard."""
        return {name: max(now_ms - heard_ms, 0) for name, heard_ms in self._departed.items()}

    def register(
        self, registration: Registration, now_ms: int, connection: object = None
    ) -> Accepted | None:
        """Call ``register_in_steps`` without interruption."""
        return run_at_once(self.register_in_steps(registration, now_ms, connection))

    def register_in_steps(
        self, registration: Registration, now_ms: int, connection: object
    ) -> Generator[None, None, Accepted | None]:
        """Add or refresh a broker; return None if its first registration lists exactly one topic.

        In that case a broker announces a single new topic to a name server that was just restarted.
        Accepting it would hide all the broker's other topics.

        Raises:
            Refusal: the connection, or all together, would register too much.
        """
        member = self._members.get(registration.name)
        known_address = self._address_of(registration.name, registration.broker_id)
        if self._is_overtaken(registration):
            return Accepted()
        if known_address is None and len(registration.topics) == 1:
            return None
        key = (registration.cluster, registration.address)
        before = self._live.get(key)
        self._check_room(registration, before, now_ms, connection)
        if before is not None and before.member is not member:
            self.unregister(*key)
        if member is None:
            member = self._add_member(registration)
        self._take_address(member, registration)
        live = self._live_of(member, registration, now_ms, connection)
        self._hear_of(key, live)
        is_changed = _is_changed(known_address, before, registration)
        for _ in self._take_topics(member, registration, is_changed=is_changed):
            yield
            if self._live.get(key) is not live:
                # The broker left meanwhile, or is registering again.
                return Accepted()
        if before is None:
            log.info(
                "broker registered",
                broker=registration.name,
                id=registration.broker_id,
                address=registration.address,
                topics=len(registration.topics),
            )
        return self._accept(member, registration)

    def _address_of(self, name: str, broker_id: int) -> str | None:
        member = self._members.get(name)
        return member.addresses.get(broker_id) if member is not None else None

    def _is_overtaken(self, registration: Registration) -> bool:
        """Whether another broker of the same name registered with a later epoch."""
        member = self._members.get(registration.name)
        if member is None:
            return False
        return self._epoch_beside(member, registration) > registration.version.state_version

    def _add_member(self, registration: Registration) -> BrokerAddresses:
        member = BrokerAddresses(registration.cluster, registration.name)
        self._members[registration.name] = member
        self._departed.pop(registration.name, None)
        return member

    def _live_of(
        self, member: BrokerAddresses, registration: Registration, now_ms: int, connection: object
    ) -> _Live:
        return _Live(
            member,
            registration.address,
            registration.ha_address,
            registration.version,
            now_ms,
            registration.timeout_ms or self._expiry_ms,
            connection,
        )

    def _check_room(
        self, registration: Registration, before: _Live | None, now_ms: int, connection: object
    ) -> None:
        reason = self._lack_of_room(registration, before, connection)
        if reason is None:
            return
        if before is not None and before.connection is connection:
            # The broker's previous registration stays valid.
            before.last_heard_ms = now_ms
        log.warning("registration refused", broker=registration.name, reason=reason)
        raise Refusal(reason)

    def _lack_of_room(
        self, registration: Registration, before: _Live | None, connection: object
    ) -> str | None:
        own = self._registered_over.get(connection, {})
        if before is None and len(self._live) >= BROKERS_MAX:
            return f"{BROKERS_MAX} brokers are registered, which is the most"
        is_new_here = before is None or before.connection is not connection
        if is_new_here and len(own) >= BROKERS_PER_CONNECTION_MAX:
            return (
                f"{BROKERS_PER_CONNECTION_MAX} brokers are registered over this connection, "
                "which is the most: register others over their own connections"
            )
        return self._lack_of_room_for(registration.name, registration.topics.keys(), own.values())

    def _lack_of_room_for(
        self, name: str, topics: Set[str], over_connection: Iterable[_Live]
    ) -> str | None:
        known = self._topics.find_topics(name)
        count = len(topics - known)
        if not count:
            return None
        if self._topics.count + count > TOPICS_MAX:
            return (
                f"all brokers together register at most {TOPICS_MAX} topics, each counted once "
                "for each broker: delete unused topics"
            )
        names = {live.member.name for live in over_connection} | {name}
        if (
            sum(len(self._topics.find_topics(each)) for each in names) + count
            > TOPICS_PER_CONNECTION_MAX
        ):
            return (
                f"the brokers of one connection register at most {TOPICS_PER_CONNECTION_MAX} "
                "topics, including deleted ones until the broker restarts: spread topics over "
                "several brokers"
            )
        return None

    def _hear_of(self, key: tuple[str, str], live: _Live) -> None:
        self._lose_sight_of(key)
        self._live[key] = live
        self._registered_over.setdefault(live.connection, {})[key] = live

    def _lose_sight_of(self, key: tuple[str, str]) -> None:
        live = self._live.pop(key, None)
        if live is None:
            return
        over = self._registered_over[live.connection]
        del over[key]
        if not over:
            del self._registered_over[live.connection]

    def _epoch_beside(self, member: BrokerAddresses, registration: Registration) -> int:
        """Return the newest epoch that a registration has to match.

        The holder of the same id counts, and for a master also every other broker of its name.
        """
        place = registration.broker_id, registration.address
        return max(
            (
                self._epoch_of(member.cluster, address)
                for broker_id, address in member.addresses.items()
                if (broker_id, address) != place
                and registration.broker_id in (broker_id, MASTER_ID)
            ),
            default=0,
        )

    def _take_address(self, member: BrokerAddresses, registration: Registration) -> None:
        addresses = member.addresses
        for broker_id in [
            other
            for other, address in addresses.items()
            if address == registration.address and other != registration.broker_id
        ]:
            del addresses[broker_id]
        former = addresses.get(registration.broker_id)
        if former is not None and former != registration.address:
            epoch = registration.version.state_version
            if epoch <= self._epoch_of(member.cluster, former):
                log.warning(
                    "two brokers register with the same name: give each its own brokerName",
                    broker=registration.name,
                    id=registration.broker_id,
                    former=former,
                    now=registration.address,
                )
            self._lose_sight_of((member.cluster, former))
        elif former is not None and member.cluster != registration.cluster:
            self._lose_sight_of((member.cluster, former))
        addresses[registration.broker_id] = registration.address
        member.cluster = registration.cluster
        member.zone = registration.zone
        member.acting_master = bool(registration.acting_master)

    def _take_topics(
        self, member: BrokerAddresses, registration: Registration, *, is_changed: bool
    ) -> Iterator[None]:
        if not self._takes_topics_of(member, registration):
            return
        is_writable = registration.broker_id == MASTER_ID or not registration.acting_master
        known = self._topics.find_topics(member.name)
        for number, (name, topic) in enumerate(registration.topics.items(), 1):
            if number % TOPICS_PER_STEP == 0:
                yield
            if is_changed or name not in known:
                self._topics.set_topic(
                    name, member.name, topic if is_writable else _remove_write(topic)
                )
            if name in registration.mappings:
                self._topics.put_mapping(name, member.name, registration.mappings[name])
        if is_changed:
            self._forget_missing(member, registration)

    def _takes_topics_of(self, member: BrokerAddresses, registration: Registration) -> bool:
        """Whether a broker registers the topics of its name: a master, or a slave in its place."""
        is_prime_slave = registration.acting_master is not None and registration.broker_id == min(
            member.addresses
        )
        is_taken = registration.broker_id == MASTER_ID or is_prime_slave
        return is_taken and not self._follows_local(member.name)

    def _forget_missing(self, member: BrokerAddresses, registration: Registration) -> None:
        if self._forget_missing_topics and registration.topics:
            for name in self._topics.find_topics(member.name) - registration.topics.keys():
                self._topics.remove(name, member.name)

    def _follows_local(self, name: str) -> bool:
        """Return whether the slave of this process's broker registers.

        The topics of such a slave are known here.
        """
        local = self._local
        return local is not None and local.name == name and local.advertisement().slaves_port > 0

    def _accept(self, member: BrokerAddresses, registration: Registration) -> Accepted:
        if registration.broker_id == MASTER_ID:
            return Accepted()
        master = member.addresses.get(MASTER_ID)
        live = self._live.get((member.cluster, master)) if master is not None else None
        return Accepted(master, live.ha_address) if live is not None else Accepted()

    def _epoch_of(self, cluster: str, address: str) -> int:
        live = self._live.get((cluster, address))
        return live.version.state_version if live is not None else 0

    def query_version(
        self, cluster: str, address: str, version: TableVersion, now_ms: int
    ) -> tuple[bool, TableVersion | None]:
        """Return whether a broker's topics differ from the registered ones, and that version."""
        live = self._live.get((cluster, address))
        if live is None:
            return True, None
        live.last_heard_ms = now_ms
        return live.version != version, live.version

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        """Record that a broker is alive; ignore an unknown one, which has to register."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_heard_ms = now_ms

    def unregister(self, cluster: str, address: str, connection: object = None) -> bool:
        """Remove a broker; its name and topics are removed with its last address.

        With a *connection*, remove it only if it registered over that: another broker may have
        registered at the same address since.
        """
        live = self._live.get((cluster, address))
        if live is None or (connection is not None and live.connection is not connection):
            return False
        self._lose_sight_of((cluster, address))
        member = live.member
        for broker_id in [key for key, value in member.addresses.items() if value == address]:
            del member.addresses[broker_id]
        if not member.addresses and self._members.get(member.name) is member:
            del self._members[member.name]
            if not self._is_local(member.name):
                self._note_departed(member.name, live.last_heard_ms)
                self._write_wiped.discard(member.name)
            self._topics.remove_broker(member.name)
        log.info("broker unregistered", broker=member.name, address=address)
        return True

    def _note_departed(self, name: str, heard_ms: int) -> None:
        self._departed[name] = heard_ms
        if len(self._departed) > DEPARTED_MAX:
            del self._departed[next(iter(self._departed))]

    def connection_lost(self, connection: object) -> None:
        """Remove the brokers that registered over *connection*."""
        for cluster, address in list(self._registered_over.get(connection, ())):
            self.unregister(cluster, address)

    def expire(self, now_ms: int) -> list[Any]:
        """Remove brokers that were silent for too long; return their connections, to be closed."""
        connections = []
        for (cluster, address), live in list(self._live.items()):
            if live.last_heard_ms + live.timeout_ms < now_ms:
                log.warning(
                    "broker is silent and dropped", broker=live.member.name, address=address
                )
                self.unregister(cluster, address)
                connections.append(live.connection)
        return connections

    def route(self, topic: str, local_address: str) -> Route | None:
        """Return the route of *topic*, with this process's broker at *local_address*.

        Return None if the topic is unknown.
        """
        queues: list[TopicQueues] = []
        members: list[BrokerAddresses] = []
        registered = self._topics.brokers(topic)
        if self._local is not None:
            # A follower may learn of a topic after its master has registered it.
            config = self._local.find_topic(topic) or registered.get(self._local.name)
            if config is not None:
                queues.append(self._with_wipe(self._local_queues(config)))
                members.append(self._local_member(local_address))
        for name, config in registered.items():
            member = self._members.get(name)
            if member is not None and member.addresses and not self._is_local(name):
                queues.append(self._with_wipe(_queue_data(name, config, config.perm)))
                members.append(member)
        return Route(queues, members, self._mappings_of(topic, queues)) if queues else None

    def _mappings_of(self, topic: str, queues: Iterable[TopicQueues]) -> dict[str, JsonObject]:
        """Return the brokers' queue mappings of *topic*, if it is a static topic."""
        found = dict(self._topics.mappings(topic))
        if self._local is not None:
            static = self._local.table.mappings.get(topic)
            if static is not None:
                found[self._local.name] = static.info()
        if not found:
            return found
        names = {data.broker_name for data in queues}
        return {name: mapping for name, mapping in found.items() if name in names}

    def members(self, local_address: str) -> list[BrokerAddresses]:
        """Return every broker name, with this process's broker at *local_address*."""
        local = [self._local_member(local_address)] if self._local is not None else []
        return local + [each for each in self._members.values() if not self._is_local(each.name)]

    @property
    def topic_count(self) -> int:
        """An upper limit of the number of topics: a topic may exist both here and elsewhere."""
        local = self._local
        return len(self._topics) + (len(local.table.configs) if local is not None else 0)

    def _local_topic_names(
        self, cluster: str | None, wanted: Callable[[TopicQueues], bool]
    ) -> Generator[None, None, set[str]]:
        names: set[str] = set()
        local = self._local
        if local is not None and cluster in (None, local.cluster):
            for number, config in enumerate(local.topics(), 1):
                if wanted(self._local_queues(config)):
                    names.add(config.name)
                if number % TOPICS_PER_STEP == 0:
                    yield
        return names

    def topic_names(
        self,
        cluster: str | None = None,
        *,
        wanted: Callable[[TopicQueues], bool] = lambda queues: True,
    ) -> Generator[None, None, set[str]]:
        """Yield while collecting topics with wanted queues, of all clusters or one.

        Return their names.
        """
        names = yield from self._local_topic_names(cluster, wanted)
        for number, topic in enumerate(self._topics.names(), 1):
            for name, config in self._topics.brokers(topic).items():
                member = self._members.get(name)
                is_in_cluster = member is not None and cluster in (None, member.cluster)
                if is_in_cluster and wanted(_queue_data(name, config, config.perm)):
                    names.add(topic)
            if number % TOPICS_PER_STEP == 0:
                yield
        return names

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove the route of *topic*, until a broker that still has it registers a change."""
        for name in list(self._topics.brokers(topic)):
            member = self._members.get(name)
            if cluster is None or (member is not None and member.cluster == cluster):
                self._topics.remove(topic, name)

    def add_topic(self, broker_name: str, topic: TopicConfig) -> None:
        """Add a single topic of a registered broker; ignore other brokers.

        Raises:
            Refusal: the limit of topics is reached.
        """
        if broker_name not in self._members:
            return
        reason = self._lack_of_room_for(broker_name, {topic.name}, ())
        if reason is not None:
            log.warning("topic refused", broker=broker_name, topic=topic.name, reason=reason)
            raise Refusal(reason)
        self._topics.set_topic(topic.name, broker_name, topic)

    def set_write_wiped(self, broker_name: str, *, wiped: bool) -> int:
        """Stop producers from sending to a broker, or allow it again.

        Return the number of its topics. Unlike RocketMQ's, this remains until it is undone,
        whatever the broker registers.
        """
        if wiped and (broker_name in self._members or self._is_local(broker_name)):
            self._write_wiped.add(broker_name)
        elif not wiped:
            self._write_wiped.discard(broker_name)
        if self._local is not None and self._local.name == broker_name:
            return sum(1 for _ in self._local.topics())
        return len(self._topics.find_topics(broker_name))

    def _with_wipe(self, queues: TopicQueues) -> TopicQueues:
        if queues.broker_name in self._write_wiped:
            return queues._replace(perm=queues.perm & ~PERM_WRITE)
        return queues

    def _local_queues(self, topic: TopicConfig) -> TopicQueues:
        assert self._local is not None
        return _queue_data(self._local.name, topic, self._local.perm_of(topic))

    def _local_member(self, address: str) -> BrokerAddresses:
        local = self._local
        assert local is not None
        advertisement = local.advertisement()
        if not advertisement.shares_name:
            return BrokerAddresses(local.cluster, local.name, {MASTER_ID: address})
        member = self._members.get(local.name)
        registered = member.addresses if member is not None else {}
        epoch = self._epoch_of(local.cluster, registered.get(MASTER_ID, ""))
        return BrokerAddresses(
            local.cluster, local.name, advertisement.members(address, registered, epoch)
        )

    def _is_local(self, name: str) -> bool:
        return self._local is not None and name == self._local.name


def _queue_data(broker_name: str, topic: TopicConfig, perm: int) -> TopicQueues:
    return TopicQueues(
        broker_name, topic.read_queue_nums, topic.write_queue_nums, perm, topic.sys_flag
    )


def _remove_write(topic: TopicConfig) -> TopicConfig:
    return TopicConfig(
        topic.name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & ~PERM_WRITE,
        filter_type=topic.filter_type,
        sys_flag=topic.sys_flag,
        order=topic.order,
        attributes=topic.attributes,
    )


def _is_changed(
    known_address: str | None, before: _Live | None, registration: Registration
) -> bool:
    """Whether the broker's topics may differ from its last registration."""
    return known_address is None or before is None or before.version != registration.version
