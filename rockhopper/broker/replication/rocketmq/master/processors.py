"""Requests of RocketMQ's slaves to their master, for a broker with haMode=classic.

Every machine may read the tables (21, 43, 45, 60, 61, 201, 402), not only administrators: slaves
sign nothing, and have all messages anyway. A slave of version 5.3.3 or 5.3.4 is refused. Whenever
its tables are older than its master's, it deletes all topics and groups, and raises its own version
in doing so. This repeats forever, and a switch at the wrong moment loses them.
"""

from collections.abc import Awaitable, Callable, Mapping

from rockhopper.broker.replication.rocketmq.master.master import ClassicMaster
from rockhopper.broker.server.remoting.dispatcher import (
    Processor,
    Request,
    Response,
    Row,
    administers,
    serves,
)
from rockhopper.broker.server.remoting.json_bodies import json_response
from rockhopper.broker.server.remoting.permissions import (
    ADMINISTRATION,
    CHANGE_CLUSTER,
    SEE_CLUSTER,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.errors import IllegalOperation
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.codes import RequestCode as Code

# MQVersion's ordinals of 5.3.3, of the snapshots of 5.3.4, and of 5.3.4.
DESTRUCTIVE_VERSIONS = frozenset((479, 480, 481))
# Administrators send the other codes too.
ASKED_BY_SLAVES_ALONE = frozenset(
    (Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT, Code.GET_ALL_MESSAGE_REQUEST_MODE)
)
DELETED_THERE = frozenset((Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
TABLES = (
    ASKED_BY_SLAVES_ALONE | DELETED_THERE | {Code.GET_ALL_CONSUMER_OFFSET, Code.GET_TIMER_METRICS}
)
REASON = (
    "slaves of RocketMQ 5.3.3 and 5.3.4 delete their topics and groups when their master's change "
    "(apache/rocketmq #9984): use 5.3.2 or earlier, or 5.4.0 or later, for the slave"
)


class ClassicProcessors:
    """The processors of a classic master."""

    def __init__(
        self,
        master: ClassicMaster,
        store: MessageStore,
        address_for: Callable[[Peer], str],
        ha_port: int,
    ) -> None:
        """*address_for* returns the address at which a peer reaches this broker."""
        self._master = master
        self._store = store
        self._address_for = address_for
        self._ha_port = ha_port

    def rows(self, table: Mapping[int, Row]) -> dict[int, Row]:
        """Return the rows that replace or extend those of *table*.

        A broker without the feature pop has no table of request modes.
        """
        rows = {
            int(code): table[code]._replace(
                processor=self._serve_slaves_only(table[code].processor),
                permissions=tuple(
                    permission
                    for permission in table[code].permissions
                    if permission is not ADMINISTRATION
                ),
            )
            for code in TABLES & table.keys()
        }
        return rows | {
            Code.EXCHANGE_BROKER_HA_INFO: serves(self.exchange, SEE_CLUSTER),
            Code.GET_BROKER_HA_STATUS: administers(self.ha_status, SEE_CLUSTER),
            Code.RESET_MASTER_FLUSH_OFFSET: administers(self.reset_flush_offset, CHANGE_CLUSTER),
        }

    def exchange(self, request: Request) -> Response:
        """906: return this master's addresses for slaves.

        Slaves receive their master's by the same code.
        """
        if request.ext.get("masterHaAddress"):
            raise IllegalOperation(
                "this broker is a master and follows no other: send its addresses to the slave"
            )
        address = self._address_for(request.connection)
        host, _ = split_address(address)
        return Response(
            ext={
                "masterAddress": address,
                "masterHaAddress": join_address(host, self._ha_port),
                "masterFlushOffset": str(self._store.log.flushed_offset),
            }
        )

    def ha_status(self, _request: Request) -> Response:
        """907: return the slaves and their progress."""
        return json_response(self._master.ha_runtime_info())

    def reset_flush_offset(self, _request: Request) -> Response:
        """908: do nothing, as RocketMQ's master does; the code is for slaves."""
        return Response()

    def _serve_slaves_only(self, processor: Processor) -> Processor:
        def process(request: Request) -> Response | Awaitable[Response | None] | None:
            command = request.command
            if command.language == LanguageCode.JAVA and command.version in DESTRUCTIVE_VERSIONS:
                if request.code in ASKED_BY_SLAVES_ALONE:
                    self._master.refuse(request.principal.host, REASON)
                if request.code in DELETED_THERE:
                    raise IllegalOperation(REASON)
            return processor(request)

        return process
