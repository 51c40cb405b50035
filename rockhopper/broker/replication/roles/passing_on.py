"""Forwarding a replica's clients across changes of role, on their existing connections.

Their requests are held while the mastership moves, forwarded to the new master until the clients
have found it themselves, and held again, to be served here, when this replica becomes the master.
"""

import asyncio
import contextlib

import structlog

from rockhopper.broker.name_server.link import serves
from rockhopper.broker.server.listening.outgoing import Outgoing
from rockhopper.broker.server.remoting.connection import FrameHandler
from rockhopper.broker.server.remoting.handover import Forwarding, Handover, MasterFinder
from rockhopper.broker.server.remoting.server import Server
from rockhopper.protocol.signing import Credentials

log = structlog.get_logger("broker")

MASTER_TIMEOUT_S = 3.0
_DRAIN_LOOK_S = 0.05


class PassingOn:
    """The clients that are held, forwarded or about to be served here; initially none."""

    def __init__(self, outgoing: Outgoing, credentials: Credentials | None, splice_ms: int) -> None:
        """*credentials* are those of this broker. Forwarding ends after *splice_ms*."""
        self._outgoing = outgoing
        self._credentials = credentials
        self._splice_ms = splice_ms
        self._handed_off: Handover | None = None
        self._was_passed_on = False
        """Whether the clients that were held last have been forwarded, even if that has ended."""
        self._returning: Handover | None = None
        self._refusing: tuple[Server, FrameHandler] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether no client is forwarded any more: all have disconnected, or it was stopped."""
        if self._handed_off is None:
            return self._was_passed_on
        return not self._handed_off.has_clients

    async def drain(self, timeout_s: float) -> None:
        """Forward clients until all have disconnected, for *timeout_s* or until ``hurry``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.has_ended:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_DRAIN_LOOK_S):
                            await self._hurried.wait()
                            return

    def hurry(self) -> None:
        """End ``drain`` now, and at once whenever it is called again."""
        self._hurried.set()

    def hold(self, server: Server) -> Handover:
        """Hold all requests of the clients of *server* until they are forwarded."""
        self.send_away()
        self._was_passed_on = False
        return Handover(server, self._outgoing)

    async def pass_on(
        self, handed_off: Handover, finder: MasterFinder, own: frozenset[int]
    ) -> None:
        """Forward *handed_off* to the master once it serves, and later connections as well.

        Each later connection goes to the master of that moment. If the first master does not
        respond, no client is forwarded. Requests of the codes *own* stay here.
        """
        self.stop()
        self._handed_off, self._was_passed_on = handed_off, True
        address = finder.master_address()
        try:
            async with asyncio.timeout(MASTER_TIMEOUT_S):
                await serves(address, self._outgoing, self._credentials)
                await handed_off.splice(finder, own)
        except (TimeoutError, OSError) as error:
            log.warning(
                "clients cannot be forwarded to the new master",
                to=address,
                reason=str(error) or "no answer",
            )
            self.stop()
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._splice_ms / 1000, self.stop)

    def begin_to_refuse(self, server: Server, own: frozenset[int]) -> None:
        """Make *server* forward clients, if forwarding is active, except for the codes *own*."""
        self.send_away()
        self._refusing = server, server.handler
        if self._handed_off is not None:
            server.handle_with(Forwarding(server.handler, self._handed_off, own))

    def let_in_by(self, server: Server) -> None:
        """Pass new connections to *server*."""
        if self._handed_off is not None:
            self._handed_off.let_in_by(server)

    def recall(self, server: Server) -> None:
        """Hold the requests of all clients, including those of *server*, which may close."""
        self._refusing = None
        self._cancel_timer()
        returning, self._handed_off = self._handed_off, None
        self._was_passed_on = False
        if returning is None:
            returning = Handover(server, self._outgoing)
            returning.leave()
        else:
            returning.recall(server)
        self._returning = returning

    def come_home(self, server: Server) -> bool:
        """Make *server* serve the recalled clients, and listen; return False if there are none."""
        returning, self._returning = self._returning, None
        if returning is None:
            return False
        returning.come_home(server)
        return True

    def send_away(self) -> None:
        """Close the recalled connections, because this replica did not get the role."""
        returning, self._returning = self._returning, None
        if returning is not None:
            returning.close()

    def stop(self) -> None:
        """End forwarding: clients then look up the master."""
        self._cancel_timer()
        handed_off, self._handed_off = self._handed_off, None
        if handed_off is None:
            return
        if self._refusing is not None:
            server, handler = self._refusing
            server.handle_with(handler)
        handed_off.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
