"""Requests to other brokers of the cluster by name, for the remote part of a static topic."""

import asyncio
from collections.abc import Mapping

from rockhopper.broker.name_server.advertisement import MASTER_ID
from rockhopper.broker.name_server.link import NameServiceLink, RefusedError
from rockhopper.broker.name_server.service import NameService
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.bodies.route import ClusterInfo
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.errors import ProtocolError

ANSWER_TIMEOUT_S = 5.0


class UnreachableError(Exception):
    """No answer arrived; str() names the broker and the cause."""


class PeerBrokers:
    """Connections to the masters of other brokers, opened when needed."""

    def __init__(self, config: BrokerConfig, name_service: NameService | None = None) -> None:
        self._config = config
        self._name_service = name_service
        self._outgoing = Outgoing(config.tls)
        self._links: dict[str, NameServiceLink] = {}

    async def ask(self, broker: str, code: int, ext: Mapping[str, str]) -> Command:
        """Send a request to the master of *broker* and return its answer, whatever its code.

        Raises:
            UnreachableError: no answer arrived.
        """
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                address = await self._address(broker)
                if address is None:
                    raise UnreachableError(f"no name server knows the broker {broker}")
                link = self._links.get(address)
                if link is None:
                    link = self._links[address] = self._link(address)
                return await link.ask(code, dict(ext))
        except (OSError, ProtocolError, RefusedError, TimeoutError) as error:
            raise UnreachableError(f"broker {broker} does not answer: {error!r}") from None

    async def _address(self, broker: str) -> str | None:
        if self._name_service is not None:
            for member in self._name_service.routes.members(""):
                if member.name == broker and member.addresses.get(MASTER_ID):
                    return member.addresses[MASTER_ID]
        for address in self._config.namesrv_addr:
            link = self._links.setdefault(address, self._link(address))
            answer = await link.call(RequestCode.GET_BROKER_CLUSTER_INFO, {})
            found = ClusterInfo.decode(answer.body).broker_addr_table.get(broker)
            if found is not None and MASTER_ID in found.broker_addrs:
                return found.broker_addrs[MASTER_ID]
        return None

    def _link(self, address: str) -> NameServiceLink:
        return NameServiceLink(
            address,
            outgoing=self._outgoing,
            credentials=self._config.auth.inner,
        )

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.close()
