"""EngineActions: performs the machine's requests to the engine, and the last ones of a process.

A request runs beside others, so the machine may have another role when the answer arrives. The
lease counts from the time at which a renewal was requested, so the machine receives that time.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.engine import Engine, EngineError
from rockhopper.broker.replication.shipping.engine_health import EngineHealth
from rockhopper.broker.replication.shipping.set_presence import SetPresence

log = structlog.get_logger("broker.ha")

FAREWELL_TIMEOUT_S = 1.0

EngineAction = actions.Campaign | actions.Alter | actions.Renew | actions.Read
"""The actions that ask the engine."""


class EngineActions:
    """The requests of one replica to its engine. Belongs to the event loop."""

    def __init__(
        self,
        engine: Engine,
        presence: SetPresence,
        health: EngineHealth,
        now_ms: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._presence = presence
        self._health = health
        self._now_ms = now_ms

    async def perform(self, action: EngineAction, machine: Machine) -> None:
        """Ask the engine, and report the answer to *machine*."""
        engine, health, asked_at_ms = self._engine, self._health, self._now_ms()
        match action:
            case actions.Campaign():
                me = self._presence.leader(action.state.epoch)
                outcome, view = await engine.campaign(action, me)
                health.record_outcome(outcome)
                machine.campaigned(outcome, view, self._now_ms())
            case actions.Alter():
                outcome, version = await engine.alter(action)
                health.record_outcome(outcome)
                machine.altered(outcome, version, self._now_ms())
            case actions.Renew():
                epoch = machine.term.epoch if machine.term else 0
                me = self._presence.leader(epoch)
                outcome = await engine.renew(me, action.version) if epoch else SwapOutcome.REFUSED
                if epoch:
                    health.renewed(outcome, asked_at_ms)
                machine.renewed(outcome, asked_at_ms)
            case actions.Read():
                await self._read(machine)

    async def _read(self, machine: Machine) -> None:
        try:
            view = await self._engine.read()
            self._health.answered()
            if not self._presence.second_because:
                machine.saw(view, self._now_ms())
        except EngineError as error:
            log.warning("the engine does not answer", reason=str(error))

    async def release(self, epoch: int) -> None:
        """Release the lease of an epoch."""
        try:
            await self._engine.resign(self._presence.leader(epoch))
        except EngineError as error:
            log.warning("the lease could not be released: it will expire", reason=str(error))

    async def resign_finally(self, epoch: int) -> bool:
        """Release the lease because this process ends; return whether the engine answered."""
        return await self._bid_farewell(self._engine.resign(self._presence.leader(epoch)))

    async def close(self, *, withdraws: bool) -> None:
        """Withdraw the announcement, if *withdraws*, and close the engine."""
        if withdraws:
            await self._bid_farewell(self._engine.withdraw())
        await self._engine.close()

    async def _bid_farewell(self, request: Awaitable[None]) -> bool:
        """Return whether the engine completed the request.

        If it did not, the lease and the announcement expire by themselves.
        """
        try:
            async with asyncio.timeout(FAREWELL_TIMEOUT_S):
                await request
        except (EngineError, TimeoutError) as error:
            log.warning(
                "the engine could not be notified of the shutdown", reason=str(error) or "no answer"
            )
            return False
        return True
