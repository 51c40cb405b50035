"""What RocketMQ's slaves ask their master, of a broker with haMode=classic.

Its tables (21, 43, 45, 60, 61, 201, 402) are given to every machine, not to administrators alone:
slaves sign nothing, and have all messages anyway. A slave of 5.3.3 or 5.3.4 is refused: each time
that its tables are older than its master's it deletes all topics and groups, raising its own
version by that, and so for ever; a switch at the wrong moment loses them.
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
from rockhopper.broker.server.remoting.needs import ADMINISTRATION, on_cluster
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import IllegalOperation
from rockhopper.broker.users.peer import Peer
from rockhopper.protocol.addresses import join_address, split_address
from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.codes import RequestCode as Code

# MQVersion's ordinals of 5.3.3, of the snapshots of 5.3.4, and of 5.3.4.
DESTRUCTIVE_VERSIONS = frozenset((479, 480, 481))
# Administrators ask the others as well.
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
    """For the table of a master."""

    def __init__(
        self,
        master: ClassicMaster,
        store: MessageStore,
        address_for: Callable[[Peer], str],
        ha_port: int,
    ) -> None:
        """*address_for* says under which address who asks reaches this broker."""
        self._master = master
        self._store = store
        self._address_for = address_for
        self._ha_port = ha_port

    def rows(self, table: Mapping[int, Row]) -> dict[int, Row]:
        """What takes the place of *table*'s rows, or comes to them."""
        see, change = on_cluster(Action.GET), on_cluster(Action.UPDATE)
        rows = {
            int(code): serves(
                self._for_slaves(table[code].processor),
                *(need for need in table[code].needs if need is not ADMINISTRATION),
            )
            for code in TABLES
        }
        return rows | {
            Code.EXCHANGE_BROKER_HA_INFO: serves(self.exchange, see),
            Code.GET_BROKER_HA_STATUS: administers(self.ha_status, see),
            Code.RESET_MASTER_FLUSH_OFFSET: administers(self.reset_flush_offset, change),
        }

    def exchange(self, request: Request) -> Response:
        """906: where slaves find this master. Sent to a slave it would name its master."""
        if request.ext.get("masterHaAddress"):
            raise IllegalOperation(
                "this broker is the master and follows nobody: send its addresses to the slave"
            )
        address = self._address_for(request.connection)
        host, _ = split_address(address)
        return Response(
            ext={
                "masterAddress": address,
                "masterHaAddress": join_address(host, self._ha_port),
                "masterFlushOffset": str(self._store.flushed_offset),
            }
        )

    def ha_status(self, _request: Request) -> Response:
        """907: the slaves, and how far they are."""
        return json_response(self._master.ha_runtime_info())

    def reset_flush_offset(self, _request: Request) -> Response:
        """908: for slaves; a master answers and does nothing, as RocketMQ's does."""
        return Response()

    def _for_slaves(self, processor: Processor) -> Processor:
        def process(request: Request) -> Response | Awaitable[Response | None] | None:
            command = request.command
            if command.language == LanguageCode.JAVA and command.version in DESTRUCTIVE_VERSIONS:
                if request.code in ASKED_BY_SLAVES_ALONE:
                    self._master.refuse(request.principal.host, REASON)
                if request.code in DELETED_THERE:
                    raise IllegalOperation(REASON)
            return processor(request)

        return process
