"""What slaves and operators ask a master of haMode=classic for: 906, 907, 908."""

from rockhopper.broker.access.access import Action
from rockhopper.broker.assembly.classic.slave_port import SlavePort
from rockhopper.broker.remoting.dispatcher import Request, Response, Row, administers
from rockhopper.broker.remoting.needs import on_cluster
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode as Code


class ClassicProcessors:
    """For the table of a master with slaves."""

    def __init__(self, slaves: SlavePort, store: MessageStore, address: str, ha_host: str) -> None:
        """*address* is where clients reach this broker, *ha_host* where slaves do."""
        self._slaves = slaves
        self._store = store
        self._address = address
        self._ha_host = ha_host

    def ha_status(self, request: Request) -> Response:
        """GET_BROKER_HA_STATUS."""
        return Response(body=fastjson.dumps(self._slaves.runtime_info()).encode())

    def exchange(self, request: Request) -> Response:
        """EXCHANGE_BROKER_HA_INFO: where the log is to be had; a master is told nothing."""
        return Response(
            ext={
                "masterAddress": self._address,
                "masterHaAddress": f"{self._ha_host}:{self._slaves.port}",
                "masterFlushOffset": str(self._store.flushed_offset),
            }
        )

    def reset_flush_offset(self, request: Request) -> Response:
        """RESET_MASTER_FLUSH_OFFSET: a slave's to keep, and nothing to a master."""
        return Response()

    def rows(self) -> dict[int, Row]:
        """What it adds to a master's table."""
        see, change = on_cluster(Action.GET), on_cluster(Action.UPDATE)
        return {
            Code.GET_BROKER_HA_STATUS: administers(self.ha_status, see),
            Code.EXCHANGE_BROKER_HA_INFO: administers(self.exchange, see),
            Code.RESET_MASTER_FLUSH_OFFSET: administers(self.reset_flush_offset, change),
        }
