"""Builds a consumer from its parts, and starts and stops them in order."""

import asyncio
import logging
import time

from rockhopper.client.consuming.assignment import Assignment
from rockhopper.client.consuming.face.patterns import TopicFinder
from rockhopper.client.consuming.fetching import Fetcher
from rockhopper.client.consuming.handout import Handout
from rockhopper.client.consuming.histories import Histories
from rockhopper.client.consuming.locks import ConsumerLocks
from rockhopper.client.consuming.notifications import Answer, Notifications
from rockhopper.client.consuming.process_queue import ProcessQueue, Room
from rockhopper.client.consuming.progress import BrokerProgress, LocalProgress, Progress
from rockhopper.client.consuming.pulling import GroupPuller
from rockhopper.client.consuming.queue_offsets import QueueOffsets
from rockhopper.client.consuming.rebalancing import Rebalancer
from rockhopper.client.consuming.redelivery import Redelivery
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.errors import ClientError, ClientStateError, RequestRefusedError
from rockhopper.client.network.connection import BrokerConnection
from rockhopper.client.network.routing import TopicRoute
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies import CheckClientRequestBody, ConsumerData, SubscriptionData
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.subscription import TYPE_TAG, Subscription
from rockhopper.tasks import end_tasks, keep_running

log = logging.getLogger(__name__)

# The interval of heartbeats and route refreshes: new queues of a topic are noticed within it.
_REFRESH_INTERVAL_S = 10.0


class ConsumerEngine:
    """All parts of a consumer behind the public class."""

    def __init__(self, nameserver: str | None, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.session = Session(
            nameserver,
            request_timeout_s=settings.request_timeout_s,
            refresh_interval_s=_REFRESH_INTERVAL_S,
            handle_request=self._handle_request,
            tls=settings.tls,
            credentials=settings.credentials,
            connections=settings.connections,
        )
        group = settings.group
        self._named = frozenset(settings.subscriptions)
        subscriptions = settings.subscriptions
        version = max((each.version for each in subscriptions.values()), default=_now_ms())
        self._retry = settings.retry_topic and Subscription(settings.retry_topic, version=version)
        self.finder = TopicFinder(self.session, settings.patterns, subscriptions, version)
        self._tell_group()
        offsets = QueueOffsets(self.session)
        histories = Histories(self.session, group)
        self.progress: Progress = (
            LocalProgress(group, settings.offsets_directory, histories)
            if settings.broadcast
            else BrokerProgress(offsets, group, histories)
        )
        # In broadcast every member reads every queue, so there are no locks.
        locks = None if settings.broadcast else ConsumerLocks(self.session, group, _now_s)
        self.locks = locks if settings.orderly else None
        """The locks of orderly mode.

        Without it, queues are locked only while they change owners.
        """
        room = Room(settings.consumer_count_max, settings.consumer_bytes_max)
        self.handout = Handout(
            settings,
            Redelivery(self.session, settings),
            may_hand_out=self._may_hand_out,
            on_idle=self._queue_idle,
        )
        self._has_asked_why = False
        self._puller = GroupPuller(
            self.session, group, subscriptions=subscriptions, histories=histories
        )
        self._fetcher = Fetcher(self._puller, settings, self, self.session.outages)
        self.assignment = Assignment(
            settings,
            self.progress,
            offsets,
            self._fetcher,
            self.handout,
            room,
            locks,
            self,
        )
        self.rebalancer = Rebalancer(
            self.session, settings, self.assignment, self.locks, _now_s, self, self.failed
        )
        self.notifications = Notifications(
            self.session,
            settings,
            self.assignment,
            self.handout,
            self.locks,
            self.rebalancer.soon,
        )
        self.session.on_connect.append(self.rebalancer.connected)
        self.is_closed = False
        self.committing: asyncio.Task[None] | None = None
        self.finding: asyncio.Task[None] | None = None
        self._refused: set[str] = set()

    def _tell_group(self) -> None:
        """Put the current subscriptions of this member into the following heartbeats."""
        settings = self.settings
        wanted = [*settings.subscriptions.values(), *([self._retry] if self._retry else ())]
        self.session.consumers[settings.group] = ConsumerData(
            group_name=settings.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=settings.model,
            consume_from_where=settings.consume_from_where,
            subscription_data_set=[SubscriptionData.from_subscription(each) for each in wanted],
            heeds_readers=True,
        )

    async def find(self) -> bool:
        """Look for matching topics now; return whether the topics have changed."""
        has_changed = await self.finder.look()
        if has_changed:
            self._tell_group()
            self.session.greet_all()
            self.rebalancer.soon()
        return has_changed

    async def _find_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.found_interval_s)
            try:
                await self.find()
            except ClientError as error:
                log.debug("topics could not be looked up, will retry: %s", error)

    def is_named(self, topic: str) -> bool:
        """See RebalancedConsumer."""
        return topic in self._named

    async def start(self) -> None:
        """Join the group and start reading. Raises ClientError, OSError."""
        await self.session.start()
        try:
            await self.progress.open()
            if self.settings.patterns:
                await self.find()
                self.finding = keep_running(
                    self._find_regularly, "looking for topics", on_failure=self.failed
                )
            await self._check_filters()
            await self.rebalancer.start()
        except BaseException:
            await self.close(0.0)
            raise
        self.committing = keep_running(
            self._commit_regularly, "committing offsets", on_failure=self.failed
        )

    async def close(self, timeout_s: float) -> None:
        """Leave the group: commit, unlock, unregister.

        The caller has dealt with in-flight messages; outcomes in progress get `timeout_s`.
        """
        self.is_closed = True
        self.handout.stop()
        try:
            await end_tasks([self.finding])
            await self.rebalancer.stop()
            self.assignment.stop_fetching()
            await self.handout.settle(timeout_s)
            await end_tasks([self.committing])
            await self.settings.callbacks.revoked(list(self.assignment.held))
            await self.assignment.close()
        finally:
            try:
                await asyncio.gather(
                    end_tasks([self.committing, self.finding]),
                    self.assignment.abandon(),
                    self.handout.abandon(),
                )
            finally:
                await self.progress.close()
                await self.session.close()

    def pauses_changed(self) -> None:
        """Apply the current state of `handout.pauses`."""
        self.assignment.pauses_changed()

    def fetched(self, held: ProcessQueue) -> None:
        """See FetchListener."""
        self.handout.offer(held)

    def moved(self, held: ProcessQueue) -> None:
        """See FetchListener."""
        self.assignment.commit_soon(held)

    def refused(self, held: ProcessQueue, error: RequestRefusedError) -> None:
        """See FetchListener."""
        topic = held.queue.topic
        if topic == self.settings.retry_topic:
            return
        if topic in self._named:
            self.forbidden(error)
        elif topic not in self._refused:
            self._refused.add(topic)
            log.warning("topic %s matches a pattern but cannot be read: %s", topic, error)

    def unknown(self, held: ProcessQueue) -> None:
        """See FetchListener."""
        self.session.routes.forget(held.queue.topic)
        self.rebalancer.soon()

    def forbidden(self, error: ClientError) -> None:
        """See RebalancedConsumer.

        An unaccepted signature does not stop the consumer while a new one may still be loaded.
        """
        is_unproven = isinstance(error, RequestRefusedError) and error.is_unproven
        if is_unproven and self._fetcher.has_read and self.session.pool.credentials_may_change:
            self.session.outages.warn(
                log,
                f"unproven {error.address}",
                "the consumer of group %r waits for its credentials file to change: %s",
                self.settings.group,
                error,
            )
            return
        self.handout.fail(error)

    async def ask_why(self, route: TopicRoute) -> None:
        """See RebalancedConsumer. Sends one pull, because heartbeats do not report the reason."""
        if self._has_asked_why or not route.read_queues:
            return
        try:
            await self._puller.pull(route.read_queues[0], 0, 1)
        except RequestRefusedError as error:
            self._has_asked_why = True
            self.forbidden(error)
        except ClientError as error:
            log.debug("a pull for diagnosis failed: %s", error)

    def _may_hand_out(self, held: ProcessQueue) -> bool:
        return self.locks is None or self.locks.holds(held.queue)

    def _queue_idle(self, held: ProcessQueue) -> None:
        self.assignment.idle(held)

    def failed(self, error: BaseException) -> None:
        """See assignment.Owner."""
        failure = ClientStateError(
            f"the consumer of group {self.settings.group!r} cannot continue: {error}",
            remedy="close it, and create a new one",
        )
        failure.__cause__ = error
        self.handout.fail(failure)

    def released(self) -> None:
        """See assignment.Owner."""
        self.rebalancer.soon()

    def _handle_request(self, connection: BrokerConnection, command: Command) -> Answer:
        return self.notifications.handle(connection, command)

    async def _check_filters(self) -> None:
        """Have the brokers check all filters that are not tags. Raises RequestRefusedError."""
        for subscription in list(self.settings.subscriptions.values()):
            if subscription.expression_type == TYPE_TAG:
                continue
            try:
                route = await self.session.routes.route(subscription.topic)
            except ClientError as error:
                log.debug(
                    "the filter of %s could not be checked yet: %s", subscription.topic, error
                )
                continue
            body = CheckClientRequestBody(
                client_id=self.session.client_id,
                group=self.settings.group,
                subscription_data=SubscriptionData.from_subscription(subscription),
            )
            for address in route.masters.values():
                await self.session.request(
                    address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode()
                )

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_interval_s)
            for failure in await self.assignment.commit():
                log.debug("offsets could not be committed, will retry: %s", failure)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _now_s() -> float:
    return asyncio.get_running_loop().time()
