"""Registrations of remote brokers (103): checks them and decodes their topics.

A registration lists every topic of its broker. So a long one is decoded in a thread, one at a time
and in order of arrival. A short one waits for earlier ones of its own connection: otherwise a long,
older one would be applied after it and restore the old state. The size limit of a decompressed
registration is that of an uncompressed one.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import TYPE_CHECKING

from rockhopper.broker.kernel.tables.json_table import TableVersion
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.route_table import Registration
from rockhopper.broker.server.loop.cooperative_work import run_at_once, run_in_slices, run_in_thread
from rockhopper.broker.server.remoting.dispatcher import Request, Response
from rockhopper.broker.server.remoting.json_bodies import SHORT_BODY_SIZE_BYTES_MAX
from rockhopper.broker.users.errors import Refusal, TooManyWait
from rockhopper.protocol.bodies.topics import RegisterBrokerBody
from rockhopper.protocol.requests import RegisterBrokerRequest

if TYPE_CHECKING:
    from rockhopper.broker.server.remoting.connection import RemotingConnection

TOPICS_MAX = 100_000
NAME_LENGTH_MAX = 255
# The total size of registrations that wait to be decoded.
WAITING_BYTES_MAX = 256 << 20
# The connection attribute that counts its waiting registrations.
_WAITING = "registrations"


class RegistrationReader:
    """Decodes the registrations that one name server receives."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting_bytes = 0

    def read(
        self,
        request: Request,
        fields: RegisterBrokerRequest,
        take: Callable[[Registration], Generator[None, None, Response]],
    ) -> Response | Awaitable[Response | None]:
        """Return the result of *take*; later if the registration is long, compressed or must wait.

        Raises:
            Refusal, MalformedBodyError: it is invalid or exceeds a limit.
        """
        is_short = not fields.compressed and len(request.body) <= SHORT_BODY_SIZE_BYTES_MAX
        if is_short and not _waiting_count(request.connection):
            return run_at_once(take(_decode(request, fields)))
        # The count ends with the connection; if the work never starts, later registrations only
        # take the slower path.
        _count_waiting(request.connection, 1)
        return self._read_later(request, fields, take)

    async def _read_later(
        self,
        request: Request,
        fields: RegisterBrokerRequest,
        take: Callable[[Registration], Generator[None, None, Response]],
    ) -> Response | None:
        size_bytes = len(request.body)
        try:
            if self._waiting_bytes + size_bytes > WAITING_BYTES_MAX:
                raise TooManyWait(
                    f"[OVERLOAD]{self._waiting_bytes} bytes of registrations are waiting "
                    "already: register again later"
                )
            self._waiting_bytes += size_bytes
            try:
                return await self._read_in_turn(request, fields, take)
            finally:
                self._waiting_bytes -= size_bytes
        finally:
            _count_waiting(request.connection, -1)

    async def _read_in_turn(
        self,
        request: Request,
        fields: RegisterBrokerRequest,
        take: Callable[[Registration], Generator[None, None, Response]],
    ) -> Response | None:
        async with self._lock:
            registration = await run_in_thread("registrations", lambda: _decode(request, fields))
            # A broker that has disconnected meanwhile would stay registered forever.
            if request.connection.closed:
                return None
            return await run_in_slices(take(registration))


def _waiting_count(connection: "RemotingConnection") -> int:
    count = connection.attributes.get(_WAITING)
    return count if isinstance(count, int) else 0


def _count_waiting(connection: "RemotingConnection", change: int) -> None:
    connection.attributes[_WAITING] = _waiting_count(connection) + change


def check_lengths(names: Iterable[str | None]) -> None:
    """Raise Refusal if a name or address in a registration is too long to store."""
    longest = max((len(name or "") for name in names), default=0)
    if longest > NAME_LENGTH_MAX:
        raise Refusal(
            f"a name or an address in a registration has {longest} characters; at most "
            f"{NAME_LENGTH_MAX} are allowed"
        )


def _decode(request: Request, fields: RegisterBrokerRequest) -> Registration:
    check_lengths(
        (
            fields.cluster_name,
            fields.broker_name,
            fields.broker_addr,
            fields.ha_server_addr,
            fields.zone_name,
        )
    )
    if fields.body_crc32 not in (0, zlib.crc32(request.body) & 0x7FFFFFFF):
        raise Refusal("crc32 not match")
    table = RegisterBrokerBody.decode_registration(
        request.body or b"{}", compressed=fields.compressed, version=request.version
    ).topic_config_serialize_wrapper
    count = len(table.topic_config_table)
    if count > TOPICS_MAX:
        raise Refusal(
            f"a broker registers {count} topics; at most {TOPICS_MAX} are allowed: spread them "
            "over several brokers"
        )
    check_lengths(table.topic_config_table)
    version = table.data_version
    return Registration(
        cluster=fields.cluster_name,
        name=fields.broker_name or "",
        broker_id=fields.broker_id,
        address=fields.broker_addr,
        ha_address=fields.ha_server_addr,
        timeout_ms=fields.heartbeat_timeout_millis,
        zone=fields.zone_name,
        acting_master=fields.enable_acting_master,
        version=TableVersion(version.counter, version.timestamp, version.state_version),
        topics={
            # Fields that no route contains would only use memory, in any amount that a peer
            # chooses.
            name: TopicConfig(
                name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm,
                sys_flag=topic.topic_sys_flag,
            )
            for name, topic in table.topic_config_table.items()
        },
        mappings={
            name: mapping
            for name, mapping in table.topic_queue_mapping_info_map.items()
            if isinstance(mapping, dict) and name in table.topic_config_table
        },
    )
