"""Repeated planned switches while one client sends: no send may fail, and none may be lost.

A switch is made as soon as the set is whole again, so that most clients are still forwarded by the
previous master or the one before it. A session is one set and counts one round per switch.
"""

import statistics
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from rockhopper.client.admin.admin import Admin
from tests.chaos.outcome import Outcome
from tests.chaos.replicas import checker
from tests.chaos.replicas.network import Network, can_cut
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.rounds import keep
from tests.chaos.replicas.set_of_replicas import host_names, running
from tests.chaos.workshop import Workshop
from tests.interop.java_client import JavaClient
from tests.support.steady_sends import (
    JavaSender,
    OurSender,
    Sender,
    answered_since,
    read_numbers,
    wall_ms,
)

SWITCHES = 25
TOPIC, QUEUES = "Switched", 4
BETWEEN = 50
"""The minimum number of answered sends between two switches."""
GOAL_MS = 300


class Session:
    """One set, and the results of its switches."""

    def __init__(self, fault: str, seed: int, observer: Observer) -> None:
        self._fault, self._seed, self._observer = fault, seed, observer
        self._pauses_ms: list[float] = []
        self._problems: list[str] = []

    async def run(self, sender: Sender) -> Outcome:
        """Switch repeatedly, then read everything back."""
        async with sender:
            for _ in range(SWITCHES):
                await self._observer.until(self._observer.is_whole_set, "whole before a switch")
                await answered_since(sender, wall_ms(), BETWEEN)
                await self._switch(sender)
        sent = sender.sent
        found = await read_numbers(self._observer.master_address, TOPIC, QUEUES)
        held = list(found.values())
        lost = sent.numbers() - set(held)
        if lost:
            self._problems.append(f"lost: {sorted(lost)[:3]} and more of {len(lost)}")
        self._problems += checker.in_short(
            f"send {each.number} failed after {each.ended_ms - each.invoked_ms:.0f} ms: {each.why}"
            for each in sent.failures
        )
        return Outcome(
            fault=self._fault,
            variant=self._fault,
            seed=self._seed,
            rounds=len(self._pauses_ms),
            acknowledged=len(sent.answers),
            lost=len(lost),
            repeated=len(held) - len(set(held)),
            wrong=len(sent.failures),
            window_ms=max(self._pauses_ms, default=0.0),
            complaints=self._problems,
            note=self._told(),
        )

    async def _switch(self, sender: Sender) -> None:
        began_ms = wall_ms()
        await self._observer.switch()
        sent = await answered_since(sender, wall_ms(), BETWEEN)
        self._pauses_ms.append(sent.pause_ms(began_ms))

    def _told(self) -> str:
        over = [f"{pause:.0f}" for pause in self._pauses_ms if pause > GOAL_MS]
        return (
            f"pauses of ms: median {statistics.median(self._pauses_ms):.0f}, "
            f"max {max(self._pauses_ms):.0f}, over {GOAL_MS}: {', '.join(over) or 'none'}"
        )


async def _session(
    directory: Path, fault: str, seed: int, sender_of: Callable[[str], Sender]
) -> Outcome:
    network = Network(host_names(1), is_cuttable=can_cut())
    is_good = False
    try:
        with network:
            outcome = await _session_on(network, directory, fault, seed, sender_of)
        is_good = outcome.is_good
        return outcome
    finally:
        if not is_good:
            keep(directory, f"{fault}-{seed}")


async def _session_on(
    network: Network,
    directory: Path,
    fault: str,
    seed: int,
    sender_of: Callable[[str], Sender],
) -> Outcome:
    async with running(directory, network, 1) as replicas:
        addresses = {number: each.address for number, each in replicas.replicas.items()}
        async with Observer(addresses) as observer:
            await observer.until(observer.is_whole, "complete after the start")
            async with Admin(replicas.nameserver) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
            session = Session(fault, seed, observer)
            return await session.run(sender_of(replicas.nameserver))


async def rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run one session with the bundled client."""
    with workshop.scratch("switches") as directory:
        yield await _session(
            directory, "switches", seed, lambda nameserver: OurSender(nameserver, TOPIC)
        )


async def java_rounds(workshop: Workshop, seed: int) -> AsyncGenerator[Outcome]:
    """Run one session with Apache's client, which does not retry: it is forwarded, or fails."""
    with workshop.scratch("java-switches") as directory:
        java = JavaClient(directory / "java")
        try:
            yield await _session(
                directory,
                "java-switches",
                seed,
                lambda nameserver: JavaSender(java, nameserver, TOPIC, retries=0),
            )
        finally:
            java.close()
