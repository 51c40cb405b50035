"""Consumers: the clients that send heartbeats, by group and by connection.

A consumer group has one member for each connection. Members divide a topic's queues among
themselves, so all of them must learn of every change at once. NOTIFY_CONSUMER_IDS_CHANGED (40) goes
to the whole group whenever a member joins, leaves, or changes its set of topics. A closed
connection and 120 s without a heartbeat count as leaving.

RocketMQ (ConsumerManager) has one subscription table for each group, in which the last heartbeat
wins. So members with different expressions filter each other's messages. Here each member has its
own table, and the group's subscriptions are those of all its members together. readers.py decides
which members then read a topic.

All of this is in memory only: after a restart, heartbeats restore it. The groups' subscriptions are
also on disk, so that pulls need not wait for heartbeats (remembered_subscriptions.py).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog

from rockhopper.broker.kernel.events import KernelListener
from rockhopper.broker.kernel.members.change_notices import CallLater, ChangeNotices
from rockhopper.broker.kernel.members.readers import ALL, ReaderKind, TopicReaders, find_readers
from rockhopper.broker.kernel.tables.remembered_subscriptions import RememberedSubscriptions
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.users.errors import TooManyWait
from rockhopper.broker.users.peer import ConsumersChanged, Peer
from rockhopper.protocol.names import is_retry_topic
from rockhopper.protocol.subscription import Subscription

log = structlog.get_logger("broker.consumer_groups")

HEARTBEAT_TIMEOUT_MS = 120_000
# Two heartbeats, which clients send every 30 s.
SHARED_ID_AFTER_MS = 60_000
DEPARTED_MEMORY_MS = 600_000
DEPARTED_MAX = 20_000
GROUPS_PER_CONNECTION_MAX = 2000
# A member that lost its connection without unregistering may be restarting.
LOST_MEMORY_MS = 30_000

_NAMED_MAX = 5

BROADCASTING = "BROADCASTING"
CLUSTERING = "CLUSTERING"
PULLING = "CONSUME_ACTIVELY"


class Client:
    """A registered connection, and its data from heartbeats."""

    __slots__ = ("client_id", "connection", "language", "last_seen_ms", "user", "version")

    def __init__(
        self, connection: Peer, client_id: str, language: int, version: int, user: str = ""
    ) -> None:
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.user = user
        """The user that sent the heartbeat; empty if there are no users."""
        self.last_seen_ms = 0


Shape = frozenset[tuple[str, str, str]]
"""Topics, expression types and expressions, without their versions."""


class ConsumeSettings(NamedTuple):
    """How a client consumes in a group, by RocketMQ's names."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    heeds_readers: bool = False
    """Whether it leaves a topic to the topic's readers, as Rockhopper's Consumer does."""


class Member(Client):
    """A consumer in a group, with its own subscriptions."""

    __slots__ = ("fingerprint", "joined_ms", "settings", "shape", "subscriptions")

    def __init__(self, client: Client, joined_ms: int = 0) -> None:
        super().__init__(client.connection, client.client_id, client.language, client.version)
        self.joined_ms = joined_ms
        self.subscriptions: dict[str, Subscription] = {}
        self.settings = ConsumeSettings()
        self.shape: Shape = frozenset()
        self.fingerprint = 0

    @property
    def is_broadcasting(self) -> bool:
        """Whether it reads every queue by itself."""
        return self.settings.message_model == BROADCASTING

    @property
    def heeds_readers(self) -> bool:
        """Whether it leaves a topic to the topic's readers."""
        return self.settings.heeds_readers

    @property
    def kind(self) -> "tuple[str, Shape]":
        """What all members of a group should have in common: message model and subscriptions."""
        return self.settings.message_model, self.shape

    def differs(self, settings: ConsumeSettings, subscriptions: Mapping[str, Subscription]) -> bool:
        """Whether a heartbeat has other settings or subscriptions than the last one."""
        return self.settings != settings or self.subscriptions != subscriptions


class ConsumerGroup:
    """The online members of one group."""

    __slots__ = ("_kinds", "_lost", "_readers", "members", "name", "settings", "shared_ids")

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = ConsumeSettings()
        """The settings of the last heartbeat."""
        self.members: dict[Peer, Member] = {}
        self.shared_ids: frozenset[str] = frozenset()
        """Client ids that several live members share: each of these receives all messages."""
        # The number of members of each kind; scanning all members at every join would be too slow.
        self._kinds: Counter[tuple[str, Shape]] = Counter()
        # The subscriptions of members that lost their connections, and until when they count.
        self._lost: dict[Shape, tuple[int, Mapping[str, Subscription]]] = {}
        self._readers: TopicReaders | None = None

    def subscribe(
        self, member: Member, subscriptions: Mapping[str, Subscription], settings: ConsumeSettings
    ) -> None:
        """Replace a member's subscriptions and settings."""
        member.subscriptions = dict(subscriptions)
        shape = frozenset(
            (s.topic, s.expression_type, s.expression) for s in subscriptions.values()
        )
        if shape == member.shape and settings == member.settings:
            return
        self._forget(member)
        member.shape, member.settings = shape, settings
        if shape:
            self._kinds[member.kind] += 1
            self._lost.pop(shape, None)

    def register_member(self, member: Member) -> None:
        """Add a member; its subscriptions follow."""
        self.members[member.connection] = member
        self._readers = None

    def remove(self, connection: Peer) -> Member | None:
        """Remove a member; return None if there is none."""
        member = self.members.pop(connection, None)
        if member is not None:
            self._forget(member)
        return member

    def _forget(self, member: Member) -> None:
        self._readers = None
        if member.shape:
            self._kinds[member.kind] -= 1
            if not self._kinds[member.kind]:
                del self._kinds[member.kind]

    def lose(self, member: Member, until_ms: int) -> bool:
        """Keep a removed member's subscriptions for a while: it may reconnect.

        Return False if others have the same ones, or if they change nothing.
        """
        if not member.heeds_readers or member.is_broadcasting or member.kind in self._kinds:
            return False
        before = self.readers
        self._lost[member.shape] = until_ms, member.subscriptions
        self._readers = None
        if self.readers == before:
            del self._lost[member.shape]
            self._readers = None
            return False
        return True

    def forget_lost(self, now_ms: int) -> bool:
        """Drop the subscriptions of members that did not reconnect.

        Return whether there were any.
        """
        gone = [shape for shape, (until_ms, _) in self._lost.items() if now_ms >= until_ms]
        for shape in gone:
            del self._lost[shape]
            self._readers = None
        return bool(gone)

    @property
    def readers(self) -> TopicReaders:
        """The readers of each topic, if members differ."""
        if len(self._kinds) <= 1 and not self._lost:
            return ALL
        if self._readers is None:
            found: dict[tuple[Shape, bool], tuple[Member, set[str]]] = {}
            for each in self.members.values():
                if not each.is_broadcasting:
                    key = each.shape, each.heeds_readers
                    found.setdefault(key, (each, set()))[1].add(each.client_id)
            self._readers = find_readers(
                [
                    ReaderKind(one.subscriptions, one.heeds_readers, ids)
                    for one, ids in found.values()
                ],
                self.client_ids(),
                [wanted for _, wanted in self._lost.values()],
            )
        return self._readers

    def must_leave(self, connection: Peer, topic: str) -> bool:
        """Return whether the member on *connection* would skip messages that others want."""
        readers = self.readers.by_topic.get(topic)
        member = self.members.get(connection)
        return (
            readers is not None
            and member is not None
            and member.heeds_readers
            and not member.is_broadcasting
            and member.client_id not in readers
            and not is_retry_topic(topic)
        )

    def settings_of(self, connection: Peer) -> ConsumeSettings:
        """Return the settings of the member on *connection*.

        If it is unknown, return those of the last heartbeat.
        """
        member = self.members.get(connection)
        return self.settings if member is None else member.settings

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member reads every queue by itself."""
        return all(member.is_broadcasting for member in self.members.values())

    def client_ids(self) -> list[str]:
        """Return each member once: a client that reconnected may still have its old connection.

        RocketMQ lists such a client twice, and no client reads the queues of the second entry until
        it expires.
        """
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def find_shared_ids(self, now_ms: int) -> frozenset[str]:
        """Return client ids that members on several connections have shared for one minute.

        A client that has reconnected sends no more heartbeats on its old connection.
        """
        if len(self.members) < 2 or self.is_broadcasting:
            return frozenset()
        kept = Counter(
            member.client_id
            for member in self.members.values()
            if now_ms - member.joined_ms >= SHARED_ID_AFTER_MS
            and now_ms - member.last_seen_ms < SHARED_ID_AFTER_MS
        )
        return frozenset(client_id for client_id, count in kept.items() if count > 1)

    def subscriptions(self) -> dict[str, Subscription]:
        """Return the group's subscriptions by topic, with the newest expression of each."""
        merged: dict[str, Subscription] = {}
        for member in self.members.values():
            for topic, subscription in member.subscriptions.items():
                known = merged.get(topic)
                if known is None or subscription.version > known.version:
                    merged[topic] = subscription
        return merged

    def subscription(self, topic: str) -> Subscription | None:
        """Return the newest subscription of any member to *topic*."""
        newest: Subscription | None = None
        for member in self.members.values():
            subscription = member.subscriptions.get(topic)
            if subscription is not None and (
                newest is None or subscription.version > newest.version
            ):
                newest = subscription
        return newest

    def is_consistent(self) -> bool:
        """Return whether all members have the same known subscriptions and message model."""
        return len(self._kinds) <= 1

    @property
    def kind_count(self) -> int:
        """The number of conflicting kinds of members; 0 if none conflict."""
        return 0 if self.is_consistent() or self.is_broadcasting else len(self._kinds)

    def is_alone(self, member: Member) -> bool:
        """Return whether no other member is of the same kind."""
        return self._kinds[member.kind] == 1

    def models(self) -> list[str]:
        """Return the message models of the members."""
        return sorted({model for model, _ in self._kinds})

    def differences(self, member: Member) -> tuple[list[str], list[str]]:
        """Return the subscriptions that only *member* has, and those that it lacks, as texts."""
        others = Shape().union(*(shape for _, shape in self._kinds if shape != member.shape))
        return _list_named(member.shape - others), _list_named(others - member.shape)


def _list_named(shape: Shape) -> list[str]:
    return [f"{topic} {expression}" for topic, _, expression in sorted(shape)[:_NAMED_MAX]]


class ConsumerGroups(Part):
    """All consumer groups that are online.

    *may_notify* returns whether a group's members are notified of changes (the settings
    notifyConsumerIdsChangedEnable of broker and group). *call_later* is the event loop's, see
    ChangeNotices. *remembered* contains the groups' subscriptions from before a restart.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        may_notify: Callable[[str], bool] = lambda _group: True,
        call_later: CallLater | None = None,
        remembered: RememberedSubscriptions | None = None,
        listeners: Sequence[KernelListener] = (),
    ) -> None:
        self._now_ms = now_ms
        self._may_notify = may_notify
        self._notices = ChangeNotices(self._tell, call_later=call_later)
        self._remembered = remembered
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Peer, set[str]] = {}
        # Connections that pull or commit for a group from before the restart, without a heartbeat
        # since.
        self._early_members: dict[str, set[Peer]] = {}
        # Subscriptions of V2 clients that lost their connection: they do not send them again.
        self._departed: OrderedDict[tuple[str, str], tuple[int, Member]] = OrderedDict()
        self._listeners = listeners

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group if any member is online."""
        return self._groups.get(group)

    def find(self, group: str, client_id: str) -> Member | None:
        """Return the member with this client id; of several connections the newest."""
        found: Member | None = None
        online = self._groups.get(group)
        if online is not None:
            for member in online.members.values():
                if member.client_id == client_id:
                    found = member
        return found

    def connection_of(self, group: str, client_id: str) -> Peer | None:
        """Return the newest open connection of a member."""
        online = self._groups.get(group)
        for member in reversed(online.members.values()) if online is not None else ():
            if member.client_id == client_id and not member.connection.closed:
                return member.connection
        return None

    def subscription(self, group: str, topic: str, connection: Peer) -> Subscription | None:
        """Return the filter of *topic* for the member on *connection*.

        This is the member's own, else the group's newest.
        """
        online = self._groups.get(group)
        if online is not None:
            member = online.members.get(connection)
            own = member.subscriptions.get(topic) if member is not None else None
            newest = own if own is not None else online.subscription(topic)
            if newest is not None:
                return newest
        return self._remembered.find(group, topic) if self._remembered is not None else None

    def is_remembered(self, group: str) -> bool:
        """Return whether *group* was online so shortly before a restart that it may come back."""
        return self._remembered is not None and group in self._remembered

    def seen_early(self, group: str, connection: Peer) -> bool:
        """Record a pull or commit from *connection* for a group without a heartbeat on it.

        Return False if the group was not online shortly before a restart.

        After a restart, this is a member whose next heartbeat may be 30 s away, while members that
        are already back divide its queues. So it is notified of the current members. A Java, Go or
        Rust client then finds itself missing, releases its queues, and sends a heartbeat at once.
        """
        if connection.closed or not self.is_remembered(group):
            return False
        early = self._early_members.setdefault(group, set())
        if connection not in early:
            early.add(connection)
            connection.on_close.append(lambda closed: early.discard(closed))
            if self._may_tell(group):
                connection.notify(ConsumersChanged(group))
        return True

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the online groups that subscribe to *topic*."""
        return [
            group.name
            for group in self._groups.values()
            if any(topic in member.subscriptions for member in group.members.values())
        ]

    def register(
        self,
        group: str,
        client: Client,
        settings: ConsumeSettings,
        subscriptions: Mapping[str, Subscription],
        fingerprint: int = 0,
    ) -> None:
        """Record a heartbeat with subscriptions."""
        if client.connection.closed:
            return
        online, member, is_new = self._note_seen(group, client)
        changed = is_new or member.subscriptions.keys() != subscriptions.keys()
        if changed or member.differs(settings, subscriptions):
            self._tell_listeners()
        online.settings = settings
        was_consistent, kind = online.is_consistent(), member.kind
        online.subscribe(member, subscriptions, settings)
        member.fingerprint = fingerprint
        if self._remembered is not None:
            self._remember(online, subscriptions, fingerprint)
        if kind != member.kind:
            changed = changed or not (was_consistent and online.is_consistent())
            self._tell_differences(online, member, was_consistent=was_consistent)
        if changed:
            self._notices.changed(group)

    def _tell_differences(
        self, online: ConsumerGroup, member: Member, *, was_consistent: bool
    ) -> None:
        """Log, once for each kind of members, that a group has members of several kinds."""
        if online.is_consistent():
            if not was_consistent:
                log.info("members of a group have the same subscriptions again", group=online.name)
            return
        if not online.is_alone(member):
            return
        here, elsewhere = online.differences(member)
        models = online.models()
        log.warning(
            "members of a group have different subscriptions",
            group=online.name,
            client=member.client_id,
            only_here=here,
            only_elsewhere=elsewhere,
            **({"models": models} if len(models) > 1 else {}),
        )
        readers = online.readers
        unread = sorted(topic for topic, ids in readers.by_topic.items() if not ids)
        if unread:
            log.warning(
                "some topics of a group are not read: no member subscribes to all that the "
                "members subscribe to",
                group=online.name,
                topics=unread[:_NAMED_MAX],
                count=len(unread),
            )
        if readers.at_risk:
            log.warning(
                "messages of a group may be skipped, or some queues may have no reader",
                group=online.name,
                topics=sorted(readers.at_risk)[:_NAMED_MAX],
                count=len(readers.at_risk),
            )

    def _remember(
        self, online: ConsumerGroup, subscriptions: Mapping[str, Subscription], fingerprint: int
    ) -> None:
        assert self._remembered is not None
        if online.is_consistent():
            self._remembered.store_subscriptions(online.name, subscriptions, fingerprint)
        else:
            # A pull could not tell whose expression applies.
            self._remembered.forget(online.name)

    def register_again(self, group: str, client: Client, fingerprint: int) -> bool:
        """Record a heartbeat that confirms the previous subscriptions (V2, withoutSub).

        Return False if the fingerprint is unknown: the client should then send everything.
        """
        if client.connection.closed:
            return True
        online, member, is_new = self._note_seen(group, client)
        departed = self._departed.pop((group, client.client_id), None)
        if is_new and departed is not None:
            online.subscribe(member, departed[1].subscriptions, departed[1].settings)
            member.fingerprint = departed[1].fingerprint
        elif is_new and self._remembered is not None:
            known = self._remembered.find_all(group, fingerprint)
            online.subscribe(member, known, member.settings)
            member.fingerprint = fingerprint if member.subscriptions else 0
        if is_new:
            self._tell_listeners()
            self._notices.changed(group)
        return member.fingerprint == fingerprint

    def _add_member(self, online: ConsumerGroup, client: Client) -> Member:
        former = online.remove(client.connection)
        member = Member(client, self._now_ms())
        online.register_member(member)
        if former is not None:
            online.subscribe(member, former.subscriptions, former.settings)
        return member

    def _note_seen(self, group: str, client: Client) -> tuple[ConsumerGroup, Member, bool]:
        groups = self._groups_of.get(client.connection)
        if groups is not None and group not in groups and len(groups) >= GROUPS_PER_CONNECTION_MAX:
            raise TooManyWait(
                f"this connection is in {len(groups)} consumer groups, which is the most: use "
                "several connections"
            )
        online = self._groups.get(group)
        if online is None:
            online = self._groups[group] = ConsumerGroup(group)
        member = online.members.get(client.connection)
        is_new = member is None or member.client_id != client.client_id
        if member is None or is_new:
            member = self._add_member(online, client)
        member.last_seen_ms = self._now_ms()
        if is_new:
            self._early_members.get(group, set()).discard(client.connection)
            if groups is None:
                groups = self._groups_of[client.connection] = set()
                client.connection.on_close.append(self._connection_closed)
            groups.add(group)
        return online, member, is_new

    def unregister(self, group: str, connection: Peer) -> None:
        """Remove a member that unregisters."""
        self._groups_of.get(connection, set()).discard(group)
        self._remove(group, connection, remember=False)

    def expire(self) -> None:
        """Remove members after 120 s without a heartbeat.

        RocketMQ does too, but notifies no member.
        """
        now_ms = self._now_ms()
        silent = [
            (group.name, member.connection)
            for group in self._groups.values()
            for member in group.members.values()
            if now_ms - member.last_seen_ms > HEARTBEAT_TIMEOUT_MS
        ]
        for online in self._groups.values():
            _note_shared_ids(online, now_ms)
            if online.forget_lost(now_ms):
                self._tell_listeners()
                self._notices.changed(online.name)
        for name, connection in silent:
            log.info("a consumer stopped sending heartbeats", group=name, peer=connection.peer)
            self.unregister(name, connection)
        if self._early_members:
            # A member without a heartbeat by now does not come back.
            for group in [name for name in self._early_members if not self.is_remembered(name)]:
                del self._early_members[group]
        self._forget_departed(now_ms)

    def _forget_departed(self, now_ms: int) -> None:
        # Ordered by the time of leaving.
        while self._departed:
            key, (left_ms, _) = next(iter(self._departed.items()))
            if now_ms - left_ms <= DEPARTED_MEMORY_MS:
                break
            del self._departed[key]

    def _connection_closed(self, connection: Peer) -> None:
        for group in self._groups_of.pop(connection, set()):
            self._remove(group, connection, remember=True)

    def _remove(self, group: str, connection: Peer, *, remember: bool) -> None:
        online = self._groups.get(group)
        if online is None:
            return
        was_consistent = online.is_consistent()
        member = online.remove(connection)
        if member is None:
            return
        self._tell_listeners()
        if remember and member.fingerprint != 0:
            self._depart(group, member)
        if not online.members:
            del self._groups[group]
            return
        if remember and online.lose(member, self._now_ms() + LOST_MEMORY_MS):
            log.info(
                "a group member disconnected: topics that only it subscribed to count a little "
                "longer",
                group=group,
                client=member.client_id,
                seconds=LOST_MEMORY_MS // 1000,
            )
        if online.is_consistent() and not was_consistent:
            log.info("members of a group have the same subscriptions again", group=group)
        self._notices.changed(group)

    def _depart(self, group: str, member: Member) -> None:
        """Remember a member's subscriptions, which it does not send again if it comes back."""
        departed = self._departed
        departed.pop((group, member.client_id), None)
        departed[group, member.client_id] = (self._now_ms(), member)
        if len(departed) > DEPARTED_MAX:
            del departed[next(iter(departed))]

    def _tell_listeners(self) -> None:
        for listener in self._listeners:
            listener.members_changed()

    def _may_tell(self, name: str) -> bool:
        group = self._groups.get(name)
        return group is not None and not group.is_broadcasting and self._may_notify(name)

    def _tell(self, name: str) -> int:
        """Notify every member to divide the queues again; return the number of members."""
        if not self._may_tell(name):
            return 0
        told = [*self._groups[name].members, *self._early_members.get(name, ())]
        for connection in told:
            connection.notify(ConsumersChanged(name))
        return len(told)


def _note_shared_ids(online: ConsumerGroup, now_ms: int) -> None:
    """Log the client ids that several members have come to share."""
    shared_ids = online.find_shared_ids(now_ms)
    for client_id in shared_ids - online.shared_ids:
        log.warning(
            "members of a group share one client id, so each gets all messages: give "
            "each its own instance name or host name",
            group=online.name,
            client=client_id,
            peers=[
                member.connection.peer
                for member in online.members.values()
                if member.client_id == client_id
            ][:_NAMED_MAX],
        )
    online.shared_ids = shared_ids
