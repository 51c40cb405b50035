"""Passing on: the clients of a replica, from role to role, on the connections that they have.

They are held while the mastership goes over, passed on to the new master until they have found it
themselves, and held again, to be served here, when this replica becomes the master.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.remoting.server import FrameHandler, Server
from rockhopper.broker.server.remoting.splicing.handover import Handover, passed_on_unless

log = structlog.get_logger("broker")

_MASTER_TIMEOUT_S = 3.0


class PassingOn:
    """Who is held, passed on or about to be served here; nobody, to begin with."""

    def __init__(
        self, outgoing: Outgoing, serves: Callable[[str], Awaitable[None]], splice_ms: int
    ) -> None:
        """*serves* returns once the broker at an address serves clients.

        After *splice_ms* nobody is passed on any more.
        """
        self._outgoing = outgoing
        self._serves = serves
        self._splice_ms = splice_ms
        self._guests: Handover | None = None
        self._returning: Handover | None = None
        self._refusing: tuple[Server, FrameHandler] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """Whether clients were passed on, and all of them are gone."""
        return self._guests is not None and not self._guests.has_clients

    def hold(self, server: Server) -> Handover:
        """Let no request of the clients of *server* in, until they are passed on."""
        self.send_away()
        return Handover(server, self._outgoing)

    async def pass_on(
        self, guests: Handover, address_of: Callable[[], str], own: frozenset[int]
    ) -> None:
        """Pass *guests* on to the master as soon as it serves; whoever comes, to who leads then.

        Nobody is passed on when it does not answer. Requests of the codes *own* stay here.
        """
        self.end()
        self._guests = guests
        address = address_of()
        try:
            async with asyncio.timeout(_MASTER_TIMEOUT_S):
                await self._serves(address)
                await guests.splice(address_of, own)
        except (TimeoutError, OSError) as error:
            log.warning(
                "clients cannot be forwarded to the new master",
                to=address,
                reason=str(error) or "no answer",
            )
            self.end()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._splice_ms / 1000, self.end)

    def begin_to_refuse(self, server: Server, own: frozenset[int]) -> None:
        """Have *server* pass clients on, if that is done, but with requests of the codes *own*."""
        self.send_away()
        self._refusing = server, server.handler
        if self._guests is not None:
            server.handler = passed_on_unless(server.handler, self._guests, own)

    def let_in_by(self, server: Server) -> None:
        """Have *server* take whoever connects from now on."""
        if self._guests is not None:
            self._guests.let_in_by(server)

    def recall(self, server: Server) -> None:
        """Hold everybody, the clients of *server* as well, which may close."""
        self._refusing = None
        self._cancel_timer()
        returning, self._guests = self._guests, None
        if returning is None:
            returning = Handover(server, self._outgoing)
            returning.leave()
        else:
            returning.recall(server)
        self._returning = returning

    def come_home(self, server: Server) -> bool:
        """Have *server* serve who was recalled, and listen; False if nobody was."""
        returning, self._returning = self._returning, None
        if returning is None:
            return False
        returning.come_home(server)
        return True

    def send_away(self) -> None:
        """Close what was recalled for a role that did not come about."""
        returning, self._returning = self._returning, None
        if returning is not None:
            returning.close()

    def end(self) -> None:
        """Pass nobody on any more: clients look for the master anew."""
        self._cancel_timer()
        guests, self._guests = self._guests, None
        if guests is None:
            return
        if self._refusing is not None:
            server, handler = self._refusing
            server.handler = handler
        guests.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
