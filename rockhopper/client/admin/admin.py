"""Admin: administration of brokers and name servers, Apache RocketMQ's included."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeVar

from rockhopper.client.arguments import check_seconds
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.errors import (
    ClientError,
    MalformedAnswerError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.client.network.absent import describe_away_brokers, format_names
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.closing import ClosedAtEnd
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.routing import TopicRoute, leave_out
from rockhopper.client.network.session import Session
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import (
    Body,
    ClusterInfo,
    KVTable,
    TopicList,
    decode_properties_text,
    encode_properties_text,
)
from rockhopper.protocol.bodies.setting_facts import SettingFacts, decode_facts
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import AUTO_CREATE_TOPIC
from rockhopper.protocol.requests import CreateTopicRequest, encode_fields
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from rockhopper.client.admin.accounts import Accounts
    from rockhopper.client.admin.admin_groups import GroupAdmin
    from rockhopper.client.admin.dead_letters import DeadLetters
    from rockhopper.client.admin.message_search import MessageSearch
    from rockhopper.client.admin.stats import StatsReader
    from rockhopper.client.received import ReceivedMessage

_Body = TypeVar("_Body", bound=Body)


QUEUES_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The offsets in a queue: from `min_offset` up to but not including `max_offset`."""

    queue: MessageQueue
    min_offset: int
    max_offset: int

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.max_offset - self.min_offset


def name_queues(ranges: Sequence[QueueRange]) -> str:
    """Format the names of the queues in *ranges*, and only some of them if there are many."""
    names = [f"{each.queue.broker_name}:{each.queue.queue_id}" for each in ranges]
    more = f" and {len(names) - QUEUES_NAMED_MAX} more"
    return ", ".join(names[:QUEUES_NAMED_MAX]) + (more if len(names) > QUEUES_NAMED_MAX else "")


class Admin(ClosedAtEnd):
    """Manages topics, offsets, single messages, brokers and their settings.

    Use it with `async with`. Every call sends one or a few requests, and does not retry failed
    ones.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        request_timeout_s: float = 5.0,
        tls: Tls = None,
        credentials: CredentialsChoice = None,
        connections: SharedConnections | None = None,
    ) -> None:
        """`tls` is True or TlsOptions; `credentials` are Credentials or a credentials file.

        If one of them is None, the environment decides. Raises ValueError, ClientStateError.
        """
        check_seconds("request_timeout_s", request_timeout_s)
        self.session = Session(
            nameserver,
            request_timeout_s=request_timeout_s,
            upkeep_log_level=logging.DEBUG,
            tls=tls,
            credentials=credentials,
            connections=connections,
        )
        """The connections, and the cached routes."""
        self.offsets = QueueOffsets(self.session)
        """Offsets of single queues: minimum, maximum, committed, by time."""

    # A command that lists topics needs none of these, so they are imported at their first use.

    @cached_property
    def groups(self) -> "GroupAdmin":
        """Consumer groups: members, lag, offset resets."""
        from rockhopper.client.admin.admin_groups import GroupAdmin

        return GroupAdmin(self.session, self.offsets, self.masters, self.delete_topic)

    @cached_property
    def dead_letters(self) -> "DeadLetters":
        """Dead letters of groups, and sending them back."""
        from rockhopper.client.admin.dead_letters import DeadLetters

        return DeadLetters(self.session, self.offsets, self._search, self.topics, self.masters)

    @cached_property
    def figures(self) -> "StatsReader":
        """Statistics over all topics and groups."""
        from rockhopper.client.admin.stats import StatsReader

        return StatsReader(self.session, self.masters)

    @cached_property
    def accounts(self) -> "Accounts":
        """Users and access rules."""
        from rockhopper.client.admin.accounts import Accounts

        return Accounts(self.session, self.masters)

    @cached_property
    def _search(self) -> "MessageSearch":
        from rockhopper.client.admin.message_search import MessageSearch

        return MessageSearch(self.session, self.brokers, self.topics)

    async def __aenter__(self) -> Self:
        await self.session.start()
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self.session.close()

    async def topics(self) -> list[str]:
        """Return the names of all topics that the name server knows, including system topics."""
        found = await self._ask_who_knows(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList, lambda said: said.topic_list
        )
        return sorted(found.topic_list)

    async def route(self, topic: str) -> TopicRoute:
        """Return the current brokers and queues of a topic. Raises RouteNotFoundError."""
        self.session.routes.forget(topic)
        return await self.session.routes.route(topic)

    def forget_route(self, topic: str) -> None:
        """Query the name server again when the route of a topic is needed next."""
        self.session.routes.forget(topic)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        write_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        attributes: Mapping[str, str] | None = None,
        broker: str | None = None,
        drain: bool = False,
    ) -> list[BrokerAddress]:
        """Create or change a topic on every master; return the brokers.

        `queues` is per broker. `attributes` are RocketMQ's, for example {"queue.type": "BatchCQ"}.
        `broker` selects a single broker, by name or address.

        Clients do not read queues numbered `queues` or more. So the call refuses to reduce the
        number of queues while the queues beyond it hold messages. With `drain` it closes these
        queues for sends; they stay readable until a later call finds them empty.

        Raises:
            RequestRefusedError: a broker refuses it.
            ClientError: queues that hold messages would be hidden.
        """
        targets = await self.masters(broker)
        full = await self.queues_beyond(topic, queues, [target.name for target in targets])
        if full and not drain:
            count = sum(each.count for each in full)
            raise ClientError(
                f"with {queues} queues no consumer would read {count:,} messages in "
                f"{name_queues(full)} of topic {topic!r}",
                remedy="pass drain=True to keep these queues readable until they are empty",
            )
        for target in targets:
            fields = CreateTopicRequest(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=_count_read_queues(target, queues, full),
                write_queue_nums=queues if write_queues is None else write_queues,
                perm=perm,
                topic_sys_flag=0,
                attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()),
            )
            await self.session.request(
                target.address, RequestCode.UPDATE_AND_CREATE_TOPIC, encode_fields(fields)
            )
        self.session.routes.forget(topic)
        return targets

    async def queues_beyond(
        self, topic: str, queues: int, brokers: Collection[str]
    ) -> list[QueueRange]:
        """Return the queues numbered `queues` and more that hold messages, on these brokers."""
        self.session.routes.forget(topic)
        try:
            route = await self.route(topic)
        except RouteNotFoundError:
            return []
        beyond = [
            queue
            for queue in sorted({*route.read_queues, *route.write_queues})
            if queue.queue_id >= queues and queue.broker_name in brokers
        ]
        ranges = await asyncio.gather(*(self.range(queue) for queue in beyond))
        return [each for each in ranges if each.count]

    async def delete_topic(self, topic: str) -> list[BrokerAddress]:
        """Delete a topic and its messages on every broker that has it; return the brokers.

        Raises RouteNotFoundError if the topic does not exist.
        """
        route = await self.route(topic)
        targets = [each for each in await self.masters() if each.name in route.brokers]
        for target in targets:
            await self.session.request(
                target.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
            )
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        for address, answer in await self.session.name_services.tell_all(code, {"topic": topic}):
            # A name server embedded in a broker learns of the deletion from the broker.
            if answer.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
                raise self.session.pool.refusal(address, code, answer)
        self.session.routes.forget(topic)
        return targets

    async def purge_topic(self, topic: str) -> list[BrokerAddress]:
        """Empty a topic on every broker that has it; return the brokers.

        The topic keeps its settings, and groups continue with messages sent afterwards. Only
        Rockhopper brokers support it: others raise ClientError. Raises RouteNotFoundError.
        """
        route = await self.route(topic)
        targets = [each for each in await self.masters() if each.name in route.brokers]
        for target in targets:
            try:
                await self.session.request(
                    target.address, RequestCode.PURGE_TOPIC, {"topic": topic}
                )
            except RequestRefusedError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                raise ClientError(
                    f"the broker {target.name} ({target.address}) cannot purge a topic: only "
                    "Rockhopper brokers can",
                    code=error.code,
                    address=target.address,
                    remedy=(
                        "let each group skip the existing messages (`rockhopper group reset "
                        f"GROUP --topic {topic} --to latest`), or delete the topic and create it "
                        "again"
                    ),
                ) from error
        return targets

    async def ranges(self, topic: str) -> list[QueueRange]:
        """Return the offsets in each queue of a topic, including write-only queues."""
        route = await self.route(topic)
        queues = sorted({*route.read_queues, *route.write_queues})
        return list(await asyncio.gather(*(self.range(queue) for queue in queues)))

    async def range(self, queue: MessageQueue) -> QueueRange:
        """Return the offsets in a queue."""
        low, high = await asyncio.gather(
            self.offsets.min_offset(queue), self.offsets.max_offset(queue)
        )
        return QueueRange(queue, low, high)

    async def message(self, message_id: str, topic: str | None = None) -> "ReceivedMessage":
        """Return the message with this id, which is a producer's id or an offset id.

        A producer's id is looked up in `topic`, or without it in every topic. Raises
        MessageNotFoundError.
        """
        return await self._search.by_id(message_id, topic)

    async def messages_by_key(
        self,
        topic: str,
        key: str | Iterable[str],
        *,
        max_count: int = 32,
        begin_time_ms: int = 0,
        end_time_ms: int | None = None,
    ) -> "list[ReceivedMessage]":
        """Return the newest messages of a topic with `key` among their keys, newest first.

        If you give several keys, in a message's form, a message matches if it has one of them.
        """
        from rockhopper.protocol.message import message_keys

        keys = message_keys(key)
        return await self._search.by_keys(topic, keys, max_count, begin_time_ms, end_time_ms)

    async def brokers(self, *, with_left_out: bool = False) -> list[BrokerAddress]:
        """Return every broker that the name server knows, including slaves.

        Brokers that the session's routes leave out are included only `with_left_out`.
        """
        return _list_brokers(await self._cluster_info(with_left_out=with_left_out))

    async def departed_brokers(self) -> list[str]:
        """Return the names of brokers that disappeared since the name server started.

        Apache's name servers do not report them.
        """
        return sorted((await self._cluster_info()).departed_brokers or ())

    async def away(self) -> list[str]:
        """Return a text that names the brokers that disappeared, and when each was last seen."""
        return describe_away_brokers(await self._cluster_info())

    async def _cluster_info(self, *, with_left_out: bool = False) -> ClusterInfo:
        info = await self._ask_who_knows(
            RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo, lambda said: said.broker_addr_table
        )
        if not with_left_out:
            leave_out(info.broker_addr_table.values(), self.session.routes.left_out)
        return info

    async def masters(self, broker: str | None = None) -> list[BrokerAddress]:
        """Return the masters, or the one with this name or address.

        Raises RouteNotFoundError if there is none.
        """
        info = await self._cluster_info()
        masters = [each for each in _list_brokers(info) if each.is_master]
        chosen = [each for each in masters if broker in (None, each.name, each.address)]
        if chosen:
            return chosen
        known = ", ".join(f"{each.name} ({each.address})" for each in masters)
        what = f"no broker {broker!r}" if masters else "no broker at all"
        remedies = (
            [f"not reachable: {format_names(away)}"]
            if (away := describe_away_brokers(info))
            else []
        )
        remedies += [
            f"the masters it knows: {known}"
            if masters
            else "start one that registers there (namesrvAddr)"
        ]
        raise RouteNotFoundError(
            f"the name server {self._name_service} knows {what}",
            address=self._name_service,
            remedy="; ".join(remedies),
        )

    async def broker_status(self, address: str) -> dict[str, str]:
        """Return the runtime status of a broker: rates, offsets, disk use."""
        answer = await self.session.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(_decode(KVTable, answer, address).table)

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of a broker."""
        answer = await self.session.request(address, RequestCode.GET_BROKER_CONFIG)
        return decode_properties_text(answer.body)

    async def describe_broker_config(self, address: str) -> list[SettingFacts] | None:
        """Return the settings of a broker with their defaults, units, and whether they change live.

        Returns None if the broker does not support it: Apache's, and Rockhopper before 0.4.
        """
        code = RequestCode.DESCRIBE_CONFIG
        try:
            answer = await self.session.request(address, code)
        except RequestRefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return None
        try:
            return decode_facts(answer.body)
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} answered {code.name} with an invalid body ({error})",
                address=address,
            ) from error

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker. Raises RequestRefusedError."""
        escaped = {name: _escape(value) for name, value in settings.items()}
        await self.session.request(
            address, RequestCode.UPDATE_BROKER_CONFIG, body=encode_properties_text(escaped)
        )

    async def take_over(self, address: str, *, force: bool = False) -> None:
        """Make a broker that follows another take its place, soon after this returns.

        Raises RequestRefusedError if data would be lost, unless `force` is set.
        """
        ext = {"force": "true" if force else "false"}
        # The broker copies its master's tables once more before it answers.
        await self.session.request(address, RequestCode.TAKE_OVER, ext, timeout_s=60.0)

    async def request(
        self,
        address: str,
        code: RequestCode,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        accept: frozenset[int] = frozenset({0}),
        timeout_s: float | None = None,
    ) -> Command:
        """Send any request to a broker and return its answer.

        Raises RequestRefusedError if the answer's code is not in `accept`.
        """
        return await self.session.request(
            address, code, dict(ext or {}), body, timeout_s=timeout_s, accept=accept
        )

    async def _ask_who_knows(
        self, code: RequestCode, kind: type[_Body], contents: Callable[[_Body], Sized]
    ) -> _Body:
        """Return the first answer that is not empty, or an empty one if no name server has more.

        A name server that restarted, or is cut off from the brokers, returns an empty answer.
        """

        def decode(answer: Command) -> _Body:
            return _decode(kind, answer, self._name_service)

        said = decode(await self._ask(code))
        if contents(said):
            return said
        others = await self.session.name_services.ask_others(
            code, knows=lambda answer: bool(contents(decode(answer)))
        )
        return said if others is None else decode(others[1])

    async def _ask(self, code: RequestCode) -> Command:
        self.session.check_open()
        answer = await self.session.name_services.ask(code)
        if answer.code != ResponseCode.SUCCESS:
            raise self.session.pool.refusal(self._name_service, code, answer)
        return answer

    @property
    def _name_service(self) -> str:
        return str(self.session.name_services)


def _count_read_queues(target: BrokerAddress, queues: int, full: Sequence[QueueRange]) -> int:
    here = [each.queue for each in full if each.queue.broker_name == target.name]
    return max((queue.queue_id + 1 for queue in here), default=queues)


def _decode(kind: type[_Body], answer: Command, address: str) -> _Body:
    try:
        return kind.decode(answer.body)
    except ProtocolError as error:
        raise MalformedAnswerError(
            f"{address} sent an invalid {kind.__name__} ({error})", address=address
        ) from error


def _list_brokers(info: ClusterInfo) -> list[BrokerAddress]:
    found = [
        BrokerAddress(broker.cluster, name, broker_id, address)
        for name, broker in info.broker_addr_table.items()
        for broker_id, address in broker.broker_addrs.items()
    ]
    return sorted(found, key=lambda each: (each.cluster, each.name, each.broker_id))


def _escape(value: str) -> str:
    """Escape a value for java.util.Properties."""
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in value)
