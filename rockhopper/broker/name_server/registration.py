"""Registers this broker with remote name servers (namesrvAddr), and keeps it registered.

RocketMQ: BrokerOuterAPI. Each name server has its own task, so one that hangs delays no other. The
broker registers at the start, every registerNameServerPeriod, and at once after the name server
closed the connection. A registration lists all topics, because a name server refuses a first
registration with a single one. Between two registrations, a changed topic is sent alone (217, as
with RocketMQ's enableSingleTopicRegister). All topics are sent again when one is deleted, when many
change at once, and to name servers that refuse 217.

A replica of a set registers with its present role: the master under id 0, a follower under its own
id. Both send the epoch as stateVersion, by which a name server recognizes the newer registration.
"""

import asyncio
import zlib
from collections.abc import Callable

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig, TopicTable
from rockhopper.broker.name_server.advertisement import ALONE, Advertisement
from rockhopper.broker.name_server.link import NameServiceLink, RefusedError
from rockhopper.broker.name_server.sharing import CREATES_FIELD, adopt, share_fields
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.settings.advertise import Advertiser
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol import fastjson
from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.protocol.bodies.route import QueueData, TopicRouteData
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import FieldError
from rockhopper.protocol.requests import BrokerIdentityRequest, RegisterBrokerRequest, encode_fields
from rockhopper.protocol.sys_flags import PERM_READ, PERM_WRITE
from rockhopper.tasks import end_task, keep_running

log = structlog.get_logger("broker.registration")

INSTANCE_FIELD = "rockhopperInstance"
RETRY_S = 1.0
TOLD_ALONE_MAX = 100
"""If more topics have changed, all topics are registered."""
# An embedded name server has its broker's users; RocketMQ's name server has none.
_TAKEN_OR_UNKNOWN = frozenset({ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
UNREGISTER_TIMEOUT_S = 1.0


class Registrar(CatalogListener):
    """Keeps this broker registered with all remote name servers."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        advertiser: Advertiser,
        *,
        instance: str,
        ha_port: int,
        advertisement: Callable[[], Advertisement] = lambda: ALONE,
        accounts: Callable[[], bytes] | None = None,
    ) -> None:
        """*accounts* returns the users to share with name servers (shared_accounts.py)."""
        self.advertisement = advertisement
        """Returns this broker's present role in its replica set.

        Call ``announce_soon`` on changes.
        """
        self._config = config
        self.accounts = accounts
        self.credentials = config.auth.inner
        """The credentials for requests to name servers."""
        self._topics = topics
        self._instance = instance
        self._outgoing = Outgoing(config.tls)
        self._keepers = [
            _Keeper(address, self, advertiser, ha_port) for address in config.namesrv_addr
        ]
        topics.listeners.append(self)

    def start(self) -> None:
        """Start to register; needs a running event loop."""
        for keeper in self._keepers:
            keeper.start()

    def announce_soon(self) -> None:
        """Register again soon, because the content of routes has changed."""
        for keeper in self._keepers:
            keeper.wake()

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Register the topic, or all if it was deleted or has logical queues."""
        is_alone = topic is not None and name not in self._topics.mappings
        for keeper in self._keepers:
            keeper.wake(name if is_alone else None)

    def topic_created(self, topic: TopicConfig) -> None:
        """Notify name servers of a topic that was created for a client."""
        for keeper in self._keepers:
            keeper.share(topic)

    def handle(self, command: Command) -> None:
        """Handle a request from a name server to this broker."""
        if command.code == RequestCode.SHARE_TOPIC and self.advertisement().is_leading:
            try:
                adopt(self._topics, command.ext)
            except FieldError as error:
                log.warning("topics cannot be shared through a name server", reason=str(error))

    async def wait_until_announced(self) -> None:
        """Return once every reachable name server knows the present topics."""
        await asyncio.gather(*(keeper.wait_until_settled() for keeper in self._keepers))

    async def stop(self) -> None:
        """Unregister where the connection is open, and stop."""
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers))

    def request_body(self, advertisement: Advertisement) -> bytes:
        """Return the body of a registration.

        It lists every topic, with permissions limited by brokerPermission. Runs in a thread,
        because with 10,000 topics it would block the event loop for too long. A topic that is
        created meanwhile triggers another registration.
        """
        version = self._topics.version.to_json()
        mask = self._mask
        if advertisement.is_in_set:
            version["stateVersion"] = advertisement.epoch
        topics = {
            name: _encode_masked(topic, mask) for name, topic in self._topics.configs.copy().items()
        }
        return fastjson.dumps(
            {
                "filterServerList": [],
                "topicConfigSerializeWrapper": {
                    "dataVersion": version,
                    "mappingDataVersion": version,
                    "topicConfigTable": topics,
                    "topicQueueMappingDetailMap": {},
                    "topicQueueMappingInfoMap": {
                        name: static.info() for name, static in dict(self._topics.mappings).items()
                    },
                },
            }
        ).encode()

    @property
    def _mask(self) -> int:
        permission = self._config.live.broker_permission
        read_write = PERM_READ | PERM_WRITE
        return -1 if permission & read_write == read_write else permission

    def topic_body(self, name: str) -> bytes | None:
        """Return the body of the registration of one topic; None if it was deleted."""
        topic = self._topics.configs.get(name)
        if topic is None:
            return None
        queues = QueueData(
            self.broker_name,
            topic.read_queue_nums,
            topic.write_queue_nums,
            topic.perm & self._mask,
            topic.sys_flag,
        )
        return TopicRouteData(queue_datas=[queues], broker_datas=[]).encode()

    def request_fields(
        self, address: str, ha_port: int, body: bytes, advertisement: Advertisement
    ) -> dict[str, str]:
        """Return the header of a registration under *address*."""
        config = self._config
        host, _ = split_address(address)
        fields = encode_fields(
            RegisterBrokerRequest(
                broker_name=config.broker_name,
                broker_addr=address,
                cluster_name=config.cluster_name,
                ha_server_addr=join_address(host, ha_port),
                broker_id=advertisement.broker_id,
                body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            )
        )
        fields[INSTANCE_FIELD] = self._instance
        fields[CREATES_FIELD] = config.live.auto_create_topic.value
        return fields

    def identity_fields(self, address: str) -> dict[str, str]:
        """Return the header that unregisters this broker."""
        config = self._config
        return encode_fields(
            BrokerIdentityRequest(
                broker_name=config.broker_name,
                broker_addr=address,
                cluster_name=config.cluster_name,
                broker_id=self.advertisement().broker_id,
            )
        )

    @property
    def broker_name(self) -> str:
        """The broker name in registrations."""
        return self._config.broker_name

    @property
    def outgoing(self) -> Outgoing:
        """The connection options for name servers."""
        return self._outgoing

    @property
    def interval_s(self) -> float:
        """The interval of periodic registrations."""
        return self._config.register_interval_ms / 1000

    @property
    def timeout_s(self) -> float:
        """The time limit of one registration."""
        return self._config.register_timeout_ms / 1000


class _Keeper:
    """Keeps the broker registered with one name server."""

    def __init__(
        self, address: str, owner: Registrar, advertiser: Advertiser, ha_port: int
    ) -> None:
        self._owner = owner
        self._advertiser = advertiser
        self._ha_port = ha_port
        self._link = NameServiceLink(
            address,
            self,
            outgoing=owner.outgoing,
            credentials=owner.credentials,
        )
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._registered_as: str | None = None
        self._registered_advertisement: Advertisement | None = None
        # Topics to register alone, unless all have to be registered.
        self._changed: dict[str, None] = {}
        self._is_all_wanted = True
        self._takes_one = True
        self._next_at_s = 0.0
        self._failure: str | None = None
        self._shared_accounts = b""

    def start(self) -> None:
        self._task = keep_running(self._run, f"registering at {self._link.address}")

    def link_lost(self) -> None:
        self._shared_accounts = b""
        self._takes_one = True
        self.wake()

    def request_received(self, command: Command) -> None:
        self._owner.handle(command)

    def wake(self, topic: str | None = None) -> None:
        """Schedule the registration of one topic, or of all."""
        if topic is None:
            self._is_all_wanted = True
        else:
            self._changed[topic] = None
        self._settled.clear()
        self._wanted.set()

    def share(self, topic: TopicConfig) -> None:
        if self._registered_as is not None:
            self._link.tell(RequestCode.SHARE_TOPIC, share_fields(topic))

    async def wait_until_settled(self) -> None:
        """Return once the last change is registered; at once while attempts fail."""
        if self._task is not None and not self._task.done() and self._failure is None:
            await self._settled.wait()

    async def stop(self) -> None:
        if self._task is None:
            return
        end_task(self._task)
        await asyncio.gather(self._task, return_exceptions=True)
        self._settled.set()
        await self._unregister()
        self._link.close()

    async def _unregister(self) -> None:
        if self._registered_as is None or not self._link.is_connected:
            return
        try:
            async with asyncio.timeout(UNREGISTER_TIMEOUT_S):
                await self._link.call(
                    RequestCode.UNREGISTER_BROKER,
                    self._owner.identity_fields(self._registered_as),
                )
        except (OSError, RefusedError, TimeoutError) as error:
            log.info(
                "not unregistered: the name server will drop this broker after its timeout",
                nameserver=self._link.address,
                reason=str(error) or "no answer",
            )
        self._registered_as = None

    async def _run(self) -> None:
        while True:
            self._wanted.clear()
            await self._register()
            if self._failure is not None or not self._wanted.is_set():
                self._settled.set()
            if self._failure is not None:
                # Do not send requests in a tight loop to a name server that closes at once.
                self._is_all_wanted = True
                await asyncio.sleep(RETRY_S)
                continue
            try:
                async with asyncio.timeout_at(self._next_at_s):
                    await self._wanted.wait()
            except TimeoutError:
                self._is_all_wanted = True

    async def _register(self) -> None:
        advertisement = self._owner.advertisement()
        if not advertisement.is_shown:
            await self._unregister()
            self._plan_next()
            self._failure = None
            return
        if await self._tell_alone(advertisement):
            return
        try:
            async with asyncio.timeout(self._owner.timeout_s):
                peer_host, local_host = await self._link.connect()
                address = self._advertiser.address_for(peer_host, local_host)
                self._is_all_wanted, self._changed = False, {}
                body = await asyncio.to_thread(self._owner.request_body, advertisement)
                self._plan_next()
                if self._owner.advertisement() != advertisement:
                    self.wake()
                    return
                await self._link.call(
                    RequestCode.REGISTER_BROKER,
                    self._owner.request_fields(address, self._ha_port, body, advertisement),
                    body,
                )
                await self._share_accounts()
        except (OSError, RefusedError, TimeoutError) as error:
            self._note_failure(str(error) or "no answer in time")
            return
        if self._registered_as != address or self._failure is not None:
            log.info("registered", nameserver=self._link.address, as_address=address)
        self._registered_as, self._registered_advertisement = address, advertisement
        self._failure = None

    def _plan_next(self) -> None:
        self._next_at_s = asyncio.get_running_loop().time() + self._owner.interval_s

    def _knows_all_but_topics(self, advertisement: Advertisement) -> bool:
        """Whether the name server takes single topics, and has the rest of the registration."""
        return (
            not self._is_all_wanted
            and self._takes_one
            and self._registered_as is not None
            and self._registered_advertisement == advertisement
        )

    async def _tell_alone(self, advertisement: Advertisement) -> bool:
        """Register only the changed topics if that is sufficient; return whether it was."""
        names, self._changed = self._changed, {}
        is_enough = self._knows_all_but_topics(advertisement) and len(names) <= TOLD_ALONE_MAX
        if not is_enough or not self._link.is_connected:
            return False
        try:
            async with asyncio.timeout(self._owner.timeout_s):
                for name in names:
                    body = self._owner.topic_body(name)
                    if body is None:
                        return False
                    fields = {"topic": name}
                    await self._link.call(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, body)
        except RefusedError:
            self._takes_one = False
            return False
        except (OSError, TimeoutError):
            return False
        return True

    async def _share_accounts(self) -> None:
        if self._owner.accounts is None:
            return
        accounts = self._owner.accounts()
        if accounts == self._shared_accounts:
            return
        if not self._link.keeps_secrets:
            self._shared_accounts = accounts
            log.warning(
                "users are not copied to a name server on another host without TLS: set "
                "tlsEnable=true, or give it its own users",
                nameserver=self._link.address,
            )
            return
        fields = {"brokerName": self._owner.broker_name}
        answer = await self._link.ask(RequestCode.SHARE_ACCOUNTS, fields, accounts)
        if answer.code not in _TAKEN_OR_UNKNOWN:
            log.warning(
                "the name server refuses the users",
                nameserver=self._link.address,
                reason=answer.remark,
            )
        self._shared_accounts = accounts

    def _note_failure(self, reason: str) -> None:
        if self._failure is None:
            log.warning(
                "registration failed, retrying", nameserver=self._link.address, reason=reason
            )
        self._failure = reason


def _encode_masked(topic: TopicConfig, mask: int) -> JsonObject:
    value = topic.to_json()
    value["perm"] = topic.perm & mask
    return value
