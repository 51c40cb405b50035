"""OpenLinks: a replica's connections to the others, from the greeting to the last frame.

A follower is accepted once it has greeted, if it has an id of its own, and is announced or has
proved the secret. The connection to the master is opened when the machine requests it. The user of
the connections receives the frames of each until it ends.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from rockhopper.broker.replication.election import wire
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.messages import Hello, Refused
from rockhopper.broker.replication.election.replica_set import SetView
from rockhopper.broker.replication.election.wire import WireError
from rockhopper.broker.replication.shipping.link import FrameReceiver, Link
from rockhopper.broker.replication.shipping.links import Links
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.refusals import Refusals
from rockhopper.broker.server.listening.listener import Listener
from rockhopper.protocol.addresses import join_address
from rockhopper.tasks import start_task

log = structlog.get_logger("broker.ha")

FAREWELL_TIMEOUT_S = 0.2


class LinkUser(FrameReceiver, Protocol):
    """Uses the connections. It is called in the event loop's thread."""

    def greeted(self, link: Link, hello: Hello) -> None:
        """Answer a follower that was accepted."""

    def perform(self) -> None:
        """Perform the actions that the machine has requested."""

    def lost(self, link: Link, *, is_news: bool) -> None:
        """Stop using a connection that has ended.

        *is_news* is False if the machine has closed it, or this replica closes.
        """

    def task_ended(self, task: "asyncio.Task[None]") -> None:
        """Stop replication if a task that served a connection has failed."""


def _is_replaced(hello: Hello, view: SetView) -> bool:
    """Return whether another process is announced under the id of the greeting replica."""
    member = view.members.get(hello.replica.id)
    return member is not None and member.incarnation != hello.incarnation


class OpenLinks:
    """The connections of one replica. Belongs to the event loop."""

    def __init__(self, membership: Membership, user: LinkUser, now_ms: Callable[[], int]) -> None:
        self.address = ""
        """This replica's address for other replicas; available from ``listen`` on."""
        self.by_number: dict[int, Link] = {}
        """The connections that the machine knows."""
        self.refusals = Refusals(now_ms)
        self._membership = membership
        self._user = user
        self._now_ms = now_ms
        self._links = Links(membership.facts, membership.gate, membership.outgoing)
        self._machine: Machine | None = None
        self._server: Listener | None = None
        self._accepted_by: dict[asyncio.Task[Any], Link] = {}
        """The accepted connection that each task greets and serves."""
        self._greeted_as: dict[int, Hello] = {}
        """The greeting of each open connection from a follower."""
        self._is_closing = False

    @property
    def machine(self) -> Machine:
        """The machine that uses the connections; available from ``attach`` on."""
        assert self._machine is not None
        return self._machine

    def attach(self, machine: Machine) -> None:
        """Let *machine* use the connections; none is accepted before the next turn of the loop."""
        self._machine = machine

    async def listen(self) -> None:
        """Listen on the HA port.

        Raises:
            OSError: the port cannot be opened.
        """
        membership = self._membership
        self._server = await self._links.listen(membership.host, membership.ha_port, self)
        self.address = join_address(membership.ha_host, self._server.port)

    def connected(self, link: Link) -> None:
        """See LinkAcceptor."""
        if self._is_closing:
            link.abort()
            return
        task = start_task(self._accepted(link))
        self._accepted_by[task] = link
        task.add_done_callback(self._accepted_by.pop)
        task.add_done_callback(self._user.task_ended)

    async def _accepted(self, link: Link) -> None:
        try:
            hello = await self._links.receive_greeting(link)
        except (WireError, TimeoutError) as error:
            self._refused(link, str(error) or "it did not greet in time")
            return
        if why := self._why_not(hello):
            link.send(wire.encode(Refused(0, why)))
            link.close()
            self._refused(link, why)
            return
        self.refusals.clear(link.host)
        self.by_number[link.number] = link
        self._greeted_as[link.number] = hello
        self._user.greeted(link, hello)
        await self._serve(link)

    def _refused(self, link: Link, why: str) -> None:
        self.refusals.note("a peer was refused", link.host, why)

    def _why_not(self, hello: Hello) -> str:
        """Return why a correctly greeted replica is refused; empty if it is accepted."""
        if hello.replica.id == self._membership.id:
            return f"two replicas have the id {self._membership.id} (haReplicaId)"
        view = self.machine.view
        if view and _is_replaced(hello, view):
            return f"another process is replica {hello.replica.id}: was its disk copied?"
        if self._membership.facts.secret:
            return ""
        announced = {member.incarnation for member in view.members.values()} if view else set()
        if hello.incarnation in announced:
            return ""
        return "without a secret (haSecretFile) only announced replicas are accepted"

    async def connect(self, replica_id: int) -> None:
        """Connect to a master, and serve the connection until it ends."""
        view = self.machine.view
        member = view.members.get(replica_id) if view else None
        following = self.machine.following
        try:
            if member is None:
                raise WireError("it has not announced itself")
            if member.replica != following.master:
                raise WireError("its store is not the one that was elected")
            link = await self._links.greet(member.ha_address, following.hello)
        except ConnectionRefusedError:
            following.not_opened(replica_id, self._now_ms(), is_refused=True)
            self._user.perform()
            return
        except (WireError, OSError, TimeoutError) as error:
            self.refusals.note(
                "the master cannot be reached", f"replica {replica_id}", str(error) or "no answer"
            )
            following.not_opened(replica_id, self._now_ms(), is_refused=False)
            self._user.perform()
            return
        self.by_number[link.number] = link
        following.opened(link.number, replica_id, self._now_ms())
        self._user.perform()
        await self._serve(link)

    async def _serve(self, link: Link) -> None:
        try:
            await link.frames(self._user)
        except WireError as error:
            log.warning("a replica sent an invalid frame", peer=link.peer, reason=str(error))
        finally:
            link.close()
            self._greeted_as.pop(link.number, None)
            was_open = self.by_number.pop(link.number, None) is not None
            self._user.lost(link, is_news=was_open and not self._is_closing)

    def close_link(self, number: int) -> bool:
        """Close a connection, from which nothing arrives any more; return False if it has ended."""
        link = self.by_number.pop(number, None)
        if link is not None:
            link.close()
        return link is not None

    def close_replaced(self, view: SetView) -> None:
        """Close the connections of followers whose id another process has now."""
        for number, hello in list(self._greeted_as.items()):
            if _is_replaced(hello, view) and (link := self.by_number.get(number)):
                log.warning("another process took over a follower's id", id=hello.replica.id)
                link.close()

    def close_all(self) -> None:
        """Close every connection; the machine is notified as each one ends."""
        for link in list(self.by_number.values()):
            link.close()

    async def close(self) -> None:
        """Accept no more connections, and close all; the machine is not notified."""
        self._is_closing = True
        if self._server:
            await self._server.stop()
        self.close_all()

    async def wait_closed(self) -> None:
        """Wait for accepted connections to end; abort those whose peer does not read."""
        accepted = dict(self._accepted_by)
        if accepted:
            await asyncio.wait(accepted, timeout=FAREWELL_TIMEOUT_S)
        for link in accepted.values():
            link.abort()
        await asyncio.gather(*accepted, return_exceptions=True)
