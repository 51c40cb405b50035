"""Computes which queues this consumer should hold, and takes over or releases queues accordingly.

A round runs when a broker reports that a member joined or left, when a route changes, when a
connection to a broker begins or ends, and every 20 s. While something is missing, a round is
retried within a second.

After a broker restarts, the members register with it one by one. The first of them would see an
incomplete group, so rounds wait a moment for the others. Meanwhile every queue is still read. Other
client implementations continue reading before they register, and retry every 3 s, so the queues of
a former member stay reserved for that long.

If members subscribe differently, a broker names the readers of a topic. Only these share its
queues, so that no message is skipped that only some of the members want (see the broker's
members/readers.py). Unless every broker of the topic names readers, all members share the queues.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rockhopper.client.consuming.absences import AbsentBrokers, AwaitedMembers
from rockhopper.client.consuming.allocation import sort_clients
from rockhopper.client.consuming.assignment import Assignment
from rockhopper.client.consuming.differences import Differences
from rockhopper.client.consuming.locks import ConsumerLocks
from rockhopper.client.consuming.options import StartFrom
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import (
    ClientError,
    MalformedAnswerError,
    RequestRefusedError,
    RouteNotFoundError,
    is_away,
)
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.client.queues import MessageQueue
from rockhopper.protocol.bodies import GetConsumerListByGroupBody
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.requests import GetConsumerListByGroupRequest, encode_fields
from rockhopper.tasks import OnFailure, end_tasks, keep_running

log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 0.5
_SETTLE_S = 0.6
# Brokers answer 1 if they know no member of the group.
_ANSWERS = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR)})


class RebalancedConsumer(Protocol):
    """The consumer that this rebalancer belongs to."""

    def is_named(self, topic: str) -> bool:
        """Whether the application named the topic; otherwise a pattern found it."""

    def forbidden(self, error: ClientError) -> None:
        """Handle a permanent refusal to read the group or a topic."""

    async def ask_why(self, route: TopicRoute) -> None:
        """Find out why a broker does not list this member in spite of its heartbeat."""


class Rebalancer:
    """Makes the assignment of one consumer follow the group's allocation rule."""

    def __init__(
        self,
        session: Session,
        settings: ConsumerSettings,
        assignment: Assignment,
        locks: ConsumerLocks | None,
        now_s: Callable[[], float],
        whole: RebalancedConsumer,
        on_failure: OnFailure,
    ) -> None:
        self._session = session
        self._settings = settings
        self._assignment = assignment
        self._locks = locks
        self._now_s = now_s
        self._whole = whole
        self._on_failure = on_failure
        self._is_complete = False
        self._due = asyncio.Event()
        self._not_before_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._known: set[MessageQueue] | None = None
        self._missing: set[str] = set()
        self._was_connected: set[str] = set()
        self._absent_brokers = AbsentBrokers(now_s)
        self._members: dict[str, list[str]] = {}
        self._differences = Differences(settings.group)
        # Topics with a broker that names no readers; each round asks another broker.
        self._beside_others: set[str] = set()
        self._awaited_members = AwaitedMembers(now_s)

    async def start(self) -> None:
        """Run the first round and start the following ones.

        Raises ClientError if no name server answers.
        """
        for topic in filter(self._whole.is_named, self._settings.subscriptions):
            try:
                await self._session.routes.route(topic)
            except RouteNotFoundError as error:
                self._warn_missing(topic, error)
        self._is_complete = await self._round()
        self._known = {
            queue
            for topic in self._topics
            if (route := self._session.routes.known(topic)) is not None
            for queue in route.read_queues
        }
        self._session.routes.on_change.append(lambda _route: self.soon())
        self._task = keep_running(self._run, "rebalancing", on_failure=self._on_failure)

    async def stop(self) -> None:
        """Stop the rounds."""
        task, self._task = self._task, None
        await end_tasks([task])

    @property
    def _topics(self) -> list[str]:
        retry_topic = self._settings.retry_topic
        return [*self._settings.subscriptions, *([retry_topic] if retry_topic else ())]

    def soon(self) -> None:
        """Request a round now."""
        self._due.set()

    def connected(self, connection: BrokerConnection) -> None:
        """Handle a new connection: a restarted master needs time to learn the group's members."""
        address = connection.address
        if not self._session.routes.has_master(address):
            return
        if address in self._was_connected:
            self._not_before_s = self._now_s() + _SETTLE_S
            self._awaited_members.wait_for(self._members)
            if self._locks is not None:
                asyncio.get_running_loop().call_soon(self.soon)
        self._was_connected.add(address)
        connection.closed.add_done_callback(lambda _: self.soon())

    def members(self, topic: str) -> list[str]:
        """Return the last known client ids of the group."""
        return self._members.get(topic, [])

    async def _run(self) -> None:
        failures = 0 if self._is_complete else 1
        self._is_complete = False  # for a restart of this task
        while True:
            pause_s = self._settings.rebalance_interval_s
            if failures:
                pause_s = min(_RETRY_FIRST_S * 2 ** min(failures - 1, 10), _RETRY_MAX_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            try:
                await self._settle()
                is_complete = await self._round()
            except ClientError as error:
                self._problem(error)
                is_complete = False
            except Exception:
                log.exception(
                    "rebalancing failed; the assignment stays unchanged until the next attempt"
                )
                is_complete = False
            failures = 0 if is_complete else failures + 1

    async def _settle(self) -> None:
        """Register with brokers that came back, and give other members time to do so."""
        await self._session.introduce(self._masters(self._topics))
        if self._locks is not None:
            await self._renew(self._locks)
        await asyncio.sleep(max(self._not_before_s - self._now_s(), 0.0))

    async def _round(self) -> bool:
        """Compare the wanted queues with those held; return False if something is still missing."""
        if self._absent_brokers:
            await self._session.routes.refresh()
        routes, undecided, is_complete = await self._routes()
        failures = await self._session.introduce(self._masters(routes))
        if self._settings.retry_topic not in (None, *routes):
            # The first heartbeat has created the retry topic.
            routes, undecided, is_complete = await self._routes()
        self._absent_brokers.compare_routes(routes.values())
        self._tell_failures(failures)
        wanted, lonely, open_topics = await self._find_wanted(routes)
        undecided |= open_topics
        is_complete = is_complete and not (self._absent_brokers or failures or open_topics)
        if self._now_s() < self._not_before_s:
            return False  # a broker came back meanwhile and does not know the whole group yet
        held = self._assignment.held
        await self._give_up([q for q in held if q not in wanted and q.topic not in undecided])
        is_taken = await self._take_over(wanted - set(self._assignment.held), lonely)
        return is_taken and is_complete

    async def _find_wanted(
        self, routes: dict[str, TopicRoute]
    ) -> tuple[set[MessageQueue], set[str], set[str]]:
        """Return this member's queues, the topics that it reads alone, and the undecided topics."""
        wanted: set[MessageQueue] = set()
        lonely: set[str] = set()
        undecided: set[str] = set()
        heard: dict[str, GetConsumerListByGroupBody] = {}
        self._differences.clear()
        all_answered = True
        for topic, route in routes.items():
            answer = await self._ask_members(route, heard)
            all_answered = all_answered and answer is not None
            members = answer.consumer_id_list if answer is not None else None
            queues = None
            if members is None or not self._awaited_members.may_come_back(topic, members):
                readers = await self._find_readers(route, answer, heard)
                queues = self._share(route, members, readers)
            if queues is None:
                undecided.add(topic)
                continue
            wanted |= queues
            if members is not None and len(set(members)) <= 1:
                lonely.add(topic)
        if all_answered:
            self._differences.tell()
        return wanted, lonely, undecided

    def _tell_failures(self, failures: Iterable[ClientError]) -> None:
        for failure in failures:
            self._problem(failure)
            is_refused = isinstance(failure, RequestRefusedError) and failure.is_forbidden
            if is_refused and not self._assignment.held:
                self._whole.forbidden(failure)

    async def _routes(self) -> tuple[dict[str, TopicRoute], set[str], bool]:
        """Return the routes, the undecided topics, and whether no route is missing.

        Undecided topics are those whose route cannot be queried now. A topic in neither collection
        does not exist.
        """
        routes: dict[str, TopicRoute] = {}
        undecided: set[str] = set()
        is_complete = True
        for topic in self._topics:
            try:
                route = await self._session.routes.route(topic)
            except RouteNotFoundError as error:
                if topic != self._settings.retry_topic and not self._whole.is_named(topic):
                    continue
                is_complete = False
                if topic != self._settings.retry_topic:
                    self._warn_missing(topic, error)
                continue
            except ClientError as error:
                self._problem(error)
                is_complete = False
                undecided.add(topic)
                continue
            if topic in self._missing:
                self._missing.discard(topic)
                log.warning("topic %s exists now and will be consumed", topic)
            if self._whole.is_named(topic) and not route.read_queues:
                self._problem(
                    f"topic {topic} has no readable queue yet: give it read permission and read "
                    "queues"
                )
            routes[topic] = route
        return routes, undecided, is_complete

    def _warn_missing(self, topic: str, error: RouteNotFoundError) -> None:
        if topic not in self._missing:
            self._missing.add(topic)
            log.warning("group %s waits for a topic: %s", self._settings.group, error)

    def _masters(self, topics: Iterable[str]) -> set[str]:
        return {
            address
            for topic in topics
            if (route := self._session.routes.known(topic)) is not None
            for address in route.masters.values()
        }

    def _share(
        self, route: TopicRoute, members: list[str] | None, readers: list[str]
    ) -> set[MessageQueue] | None:
        """Return this member's queues of a topic; None if undecided."""
        if not route.read_queues:
            return None
        if self._settings.broadcast:
            return set(route.read_queues)
        if members is None:
            return None
        self._members[route.topic] = members
        if self._session.client_id not in readers:
            return set()
        shared = self._settings.rule.allocate(
            self._session.client_id, sorted(route.read_queues), sort_clients(readers)
        )
        return set(shared)

    async def _find_readers(
        self,
        route: TopicRoute,
        answer: GetConsumerListByGroupBody | None,
        heard: dict[str, GetConsumerListByGroupBody],
    ) -> list[str]:
        """Return the members that share the queues of a topic: those that every broker names."""
        if answer is None:
            return []
        topic, members = route.topic, answer.consumer_id_list
        named = (answer.readers or {}).get(topic)
        if named is None:
            self._check_risk(topic, answer)
            return members
        readers = await self._agreed(route, set(named), heard)
        is_retry = topic == self._settings.retry_topic
        if readers is None:
            if not is_retry:
                self._beside_others.add(topic)
                self._differences.at_risk.add(topic)
            return members
        if not is_retry:
            self._differences.record(topic, named, self._session.client_id)
        return [member for member in members if member in readers]

    def _check_risk(self, topic: str, answer: GetConsumerListByGroupBody) -> None:
        """Note a topic whose readers a broker cannot name although members may differ."""
        if answer.readers is not None:
            self._beside_others.discard(topic)
        if topic in self._beside_others or topic in (answer.topics_at_risk or ()):
            self._differences.at_risk.add(topic)

    async def _agreed(
        self, route: TopicRoute, readers: set[str], heard: dict[str, GetConsumerListByGroupBody]
    ) -> set[str] | None:
        """Return those of *readers* that every broker names; None if a broker names no readers.

        A broker that is unreachable, or does not list this member, is ignored.
        """
        for address in route.masters.values():
            try:
                other = heard[address] if address in heard else await self._members_at(address)
            except ClientError as error:
                self._problem(error)
                continue
            if self._session.client_id not in other.consumer_id_list:
                continue
            if other.readers is None:
                return None
            heard[address] = other
            readers &= set(other.readers.get(route.topic, other.consumer_id_list))
        return readers

    async def _ask_members(
        self, route: TopicRoute, heard: dict[str, GetConsumerListByGroupBody]
    ) -> GetConsumerListByGroupBody | None:
        """Return the group's client ids, including this member's; None if no broker knows them.

        The answer of an address is reused for the other topics of the round.
        """
        if self._settings.broadcast:
            return None
        addresses = list(route.masters.values())
        random.shuffle(addresses)
        for address in addresses:
            if address in heard:
                return heard[address]
            try:
                answer = await self._members_at(address)
                if self._session.client_id not in answer.consumer_id_list:
                    await self._session.heartbeat(address)
                    answer = await self._members_at(address)
            except ClientError as error:
                self._problem(error)
                continue
            if self._session.client_id in answer.consumer_id_list:
                heard[address] = answer
                return answer
            await self._whole.ask_why(route)
            self._problem(
                f"{address} does not list this consumer as a member of {self._settings.group!r}; "
                "the group may not exist: create it, or allow autoCreateSubscriptionGroup on the "
                "broker"
            )
        return None

    async def _members_at(self, address: str) -> GetConsumerListByGroupBody:
        fields = GetConsumerListByGroupRequest(consumer_group=self._settings.group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await self._session.request(address, code, encode_fields(fields), accept=_ANSWERS)
        if answer.code != ResponseCode.SUCCESS:
            return GetConsumerListByGroupBody()
        try:
            return GetConsumerListByGroupBody.decode(answer.body)
        except ProtocolError as error:
            raise MalformedAnswerError(
                f"{address} sent an invalid list of consumers ({error})",
                address=address,
            ) from error

    async def _take_over(self, added: set[MessageQueue], lonely: set[str]) -> bool:
        free, is_complete = await self._lock_free(added)
        ordered = sorted(free)
        try:
            starts = await self._starts_of(ordered)
        except (ClientError, OSError) as error:
            self._problem(f"where the group starts is not known yet: {error}")
            return False
        callbacks = self._settings.callbacks
        outcomes = await asyncio.gather(
            *(
                self._assignment.take_over(
                    queue,
                    starts[queue],
                    is_alone=queue.topic in lonely,
                    waits_for_word=callbacks.on_assigned is not None,
                )
                for queue in ordered
            ),
            return_exceptions=True,
        )
        for queue, outcome in zip(ordered, outcomes, strict=True):
            if isinstance(outcome, ClientError | OSError):
                is_complete = False
                self._tell_not_taken(queue, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        if callbacks.on_assigned is not None:
            taken = [queue for queue in ordered if queue in self._assignment.held]
            await callbacks.assigned(taken)
            self._assignment.suspend(taken, False)
        return is_complete

    async def _lock_free(self, added: set[MessageQueue]) -> tuple[set[MessageQueue], bool]:
        """Return the queues that may be taken over now, and whether these are all."""
        free = {queue for queue in added if not self._assignment.is_releasing(queue)}
        is_complete = free == added
        if self._locks is None or not free:
            return free, is_complete
        refused, all_answered = await self._locks.lock(free)
        held = {queue for queue in free if self._locks.holds(queue)}
        return held, is_complete and all_answered and not refused

    def _tell_not_taken(self, queue: MessageQueue, error: ClientError | OSError) -> None:
        if isinstance(error, RequestRefusedError) and error.is_forbidden:
            self._forbidden(queue.topic, error)
        self._problem(f"{queue} cannot be taken over yet: {error}")

    async def _give_up(self, queues: list[MessageQueue]) -> None:
        callbacks = self._settings.callbacks
        if queues and callbacks.on_revoked is not None:
            self._assignment.suspend(queues, True)
            await callbacks.revoked(queues)
        for queue in queues:
            if queue in self._assignment.held:
                self._assignment.give_up(queue)

    async def _renew(self, locks: ConsumerLocks) -> None:
        refused, _ = await locks.lock(self._assignment.to_lock)
        lost = refused & set(self._assignment.held)
        for queue in refused:
            log.warning("another member of the group has locked %s", queue)
            self._assignment.lose(queue)
        self._assignment.offer_all()
        await self._settings.callbacks.revoked(list(lost))

    async def _starts_of(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, StartFrom]:
        """Return where the group starts in each queue without a committed offset.

        If the group has read other queues of the topic, such a queue was created while no member
        was running, so it is read from its beginning.
        """
        starts = {queue: self._start_of(queue) for queue in queues}
        for topic in {queue.topic for queue, start in starts.items() if start != "earliest"}:
            route = await self._session.routes.route(topic)
            if await self._assignment.has_begun(route.read_queues, self._settings.start_from):
                starts.update((queue, "earliest") for queue in queues if queue.topic == topic)
        return starts

    def _forbidden(self, topic: str, error: RequestRefusedError) -> None:
        """Report a permanent error to the consumer, unless it can still read the topic."""
        is_read = any(queue.topic == topic for queue in self._assignment.held)
        if self._whole.is_named(topic) and not is_read:
            self._whole.forbidden(error)

    def _start_of(self, queue: MessageQueue) -> StartFrom:
        """Return where to start without a committed offset; new queues start at their beginning."""
        if queue.topic == self._settings.retry_topic:
            return "earliest"
        if queue.topic in self._missing:
            return "earliest"
        if self._known is not None and queue not in self._known:
            return "earliest"
        return self._settings.start_from

    def _problem(self, what: ClientError | str) -> None:
        """Log a problem, but not in every round while it lasts."""
        away = what.address if isinstance(what, ClientError) and is_away(what) else None
        text = "the queues of group %s: %s"
        self._session.outages.warn(log, away or str(what), text, self._settings.group, what)
