"""The connections of a replica: which are accepted, what is reported of each, and how they end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import structlog

from rockhopper.broker.replication.election import actions, wire
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.messages import Ack, Hello, Refused
from rockhopper.broker.replication.election.replica_set import Announcement, Replica, SetView
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing
from rockhopper.broker.replication.shipping.link import Link
from rockhopper.broker.replication.shipping.links import Links, SetFacts
from rockhopper.broker.replication.shipping.membership import Membership
from rockhopper.broker.replication.shipping.open_links import OpenLinks
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.link_frames import Frames
from tests.support.turns import until

FACTS = SetFacts("DefaultCluster", "broker-a", 4096, b"secret")
ME, OTHER = Replica(1, "s1"), Replica(2, "s2")
HELLO = Hello(OTHER, "i2", 5, True, 70, 90, ())


class Owner(Frames):
    """Records what is reported of each connection, and the machine's actions."""

    def __init__(self, facts: SetFacts = FACTS) -> None:
        super().__init__()
        state = ReplicaState(ME, "i1")
        self.machine = Machine(state, Timing(), min_in_sync=1, now_ms=0, spread=lambda: 0)
        self.hellos: list[Hello] = []
        self.ended: list[tuple[int, bool]] = []
        self.performed: list[actions.Action] = []
        self.failures: list[BaseException] = []
        membership = Membership(1, facts, 1, "b1:1", host="127.0.0.1")
        self.links = OpenLinks(membership, self, lambda: 0)

    def greeted(self, _link: Link, hello: Hello) -> None:
        self.hellos.append(hello)

    def perform(self) -> None:
        self.performed += self.machine.actions
        self.machine.actions.clear()

    def lost(self, link: Link, *, is_news: bool) -> None:
        self.ended.append((link.number, is_news))

    def task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            self.failures.append(error)

    def see(self, *members: Announcement) -> SetView:
        """Let the machine see these members of the set."""
        self.machine.view = SetView(None, 1, None, {each.replica.id: each for each in members})
        return self.machine.view


@contextlib.asynccontextmanager
async def listening(facts: SetFacts = FACTS) -> AsyncIterator[Owner]:
    owner = Owner(facts)
    await owner.links.listen()
    owner.links.attach(owner.machine)
    yield owner
    await owner.links.close()
    await owner.links.wait_closed()
    assert owner.failures == []


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    async with listening() as owner:
        yield owner


def announced(replica: Replica, incarnation: str, ha_address: str = "") -> Announcement:
    return Announcement(replica, incarnation, "b:1", ha_address, 0, 0)


async def refusal(owner: Owner, hello: Hello, facts: SetFacts = FACTS) -> str:
    """Greet as a follower that is refused; return the reason it gets."""
    link = await Links(facts).greet(owner.links.address, lambda: hello)
    said = Frames()
    await link.frames(said)
    link.close()
    (refused,) = said.found
    assert isinstance(refused, Refused)
    return refused.why


async def test_a_follower_is_accepted_and_its_frames_reach_the_owner(owner: Owner) -> None:
    link = await Links(FACTS).greet(owner.links.address, lambda: HELLO)
    await until(lambda: owner.hellos == [HELLO])
    (number,) = owner.links.by_number
    link.send(wire.encode(Ack(5, 90, True)))
    await until(lambda: owner.found == [Ack(5, 90, True)])
    link.close()
    await until(lambda: owner.ended == [(number, True)])
    assert owner.links.by_number == {}


async def test_a_replica_with_the_same_id_is_refused(owner: Owner) -> None:
    why = await refusal(owner, replace(HELLO, replica=Replica(1, "another disk")))
    assert why == "two replicas have the id 1 (haReplicaId)"
    assert owner.hellos == []
    await until(lambda: owner.links.refusals.sentences == [f"a peer was refused: 127.0.0.1: {why}"])


async def test_a_replica_whose_id_another_process_has_is_refused(owner: Owner) -> None:
    owner.see(announced(OTHER, "another"))
    why = await refusal(owner, HELLO)
    assert why == "another process is replica 2: was its disk copied?"


async def test_without_a_secret_only_announced_replicas_are_accepted() -> None:
    facts = replace(FACTS, secret=b"")
    async with listening(facts) as owner:
        assert "only announced replicas" in await refusal(owner, HELLO, facts)
        owner.see(announced(OTHER, "i2"))
        link = await Links(facts).greet(owner.links.address, lambda: HELLO)
        await until(lambda: owner.hellos == [HELLO])
        assert owner.links.refusals.sentences == []
        link.close()


async def test_the_connection_of_a_replaced_follower_is_closed(owner: Owner) -> None:
    await Links(FACTS).greet(owner.links.address, lambda: HELLO)
    await until(lambda: owner.hellos == [HELLO])
    (number,) = owner.links.by_number
    owner.links.close_replaced(owner.see(announced(OTHER, "i2")))
    assert not owner.links.by_number[number].is_closing
    owner.links.close_replaced(owner.see(announced(OTHER, "another")))
    await until(lambda: owner.ended == [(number, True)])


async def test_a_connection_that_the_machine_closes_is_no_news(owner: Owner) -> None:
    await Links(FACTS).greet(owner.links.address, lambda: HELLO)
    await until(lambda: owner.hellos == [HELLO])
    (number,) = owner.links.by_number
    assert owner.links.close_link(number)
    assert not owner.links.close_link(number)
    await until(lambda: owner.ended == [(number, False)])


async def test_a_master_is_greeted_and_served(owner: Owner) -> None:
    async with listening() as follower:
        follower.see(announced(ME, "i1", owner.links.address))
        following = follower.machine.following
        following.follow(ME, 0)
        connecting = asyncio.create_task(follower.links.connect(ME.id))
        await until(lambda: following.link is not None)
        assert [type(each) for each in follower.performed] == [actions.Open, actions.SendMessage]
        await follower.links.close()
        await connecting
        assert follower.ended == [(following.link, False)]


async def test_a_master_that_cannot_be_reached_is_noted(owner: Owner) -> None:
    following = owner.machine.following
    following.follow(OTHER, 0)
    with structlog.testing.capture_logs() as logs:
        await owner.links.connect(OTHER.id)
        owner.see(announced(Replica(2, "another disk"), "i2"))
        await owner.links.connect(OTHER.id)
    assert [(each["event"], each["reason"]) for each in logs] == [
        ("the master cannot be reached", "it has not announced itself"),
        ("the master cannot be reached", "its store is not the one that was elected"),
    ]
    assert following.refusals == 0


async def test_a_machine_without_a_process_counts_as_a_refusal(owner: Owner) -> None:
    owner.see(announced(OTHER, "i2", f"127.0.0.1:{free_port()}"))
    owner.machine.following.follow(OTHER, 0)
    await owner.links.connect(OTHER.id)
    assert owner.machine.following.refusals == 1
    assert owner.links.refusals.sentences == []


async def test_a_peer_that_does_not_greet_does_not_delay_the_end(owner: Owner) -> None:
    host, port = owner.links.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))

    def greeting() -> list[str]:
        names = [str(task.get_coro()) for task in asyncio.all_tasks()]
        return [name for name in names if "_accepted" in name]

    await until(lambda: len(greeting()) == 1)
    await owner.links.close()
    await owner.links.wait_closed()
    assert greeting() == []
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_is_accepted_as_the_port_closes_is_closed(
    owner: Owner, turns: int
) -> None:
    host, port = owner.links.address.split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as peer:
        for _ in range(turns):
            await asyncio.sleep(0)
        await owner.links.close()
        await owner.links.wait_closed()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.to_thread(peer.recv, 1) == b""
