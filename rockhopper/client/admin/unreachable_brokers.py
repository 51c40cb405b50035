"""UnreachableBrokers: finds unreachable brokers, so that a page or a list waits for them only once.

Before a page is built, all brokers that the name server knows are pinged concurrently. The session
ignores those that do not answer: the page shows the data of the others and names the missing ones.
A broker that timed out is not pinged again for some seconds.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from rockhopper.client.admin.admin import Admin
from rockhopper.client.errors import BrokerUnreachableError, ClientError, RequestTimeoutError
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.network.session import Session

ANSWER_WITHIN_S = 1.0
ASKED_AGAIN_AFTER_S = 10.0


def display_name(broker: BrokerAddress) -> str:
    """Return the name to display; a replica has the same broker name as its master."""
    return broker.name if broker.is_master else f"replica {broker.broker_id} of {broker.name}"


class UnreachableBroker(NamedTuple):
    """A broker that does not answer."""

    broker: BrokerAddress
    problem: str


class UnreachableBrokers:
    """The results of recent pings. Use it only in one event loop."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        *,
        answer_within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._now_s = now_s
        self._answer_within_s = answer_within_s
        self._hung: dict[str, tuple[float, str]] = {}

    def note(self, error: RequestTimeoutError) -> None:
        """Do not ping this broker for a while."""
        if error.address is not None:
            self._hung[error.address] = (self._now_s() + ASKED_AGAIN_AFTER_S, str(error))

    async def leave_out(
        self, admin: Admin, among: Callable[[BrokerAddress], bool] | None = None
    ) -> tuple[list[UnreachableBroker], int]:
        """Make *admin* ignore unreachable brokers; return them, and how many brokers answer.

        Only brokers for which `among` returns true are pinged and counted.
        """
        brokers = list(filter(among, await admin.brokers(with_left_out=True)))
        problems = await asyncio.gather(
            *(self._problem(admin.session, each.address) for each in brokers)
        )
        silent = [
            UnreachableBroker(*each) for each in zip(brokers, problems, strict=True) if each[1]
        ]
        admin.session.routes.leave_out(frozenset(each.broker.address for each in silent))
        return silent, len(brokers) - len(silent)

    async def _problem(self, session: Session, address: str) -> str:
        until_s, problem = self._hung.get(address, (0.0, ""))
        if self._now_s() < until_s:
            return problem
        self._hung.pop(address, None)
        try:
            await session.heartbeat(address, self._answer_within_s)
        except RequestTimeoutError as error:
            self.note(error)
            return str(error)
        except BrokerUnreachableError as error:
            return str(error)
        except ClientError:
            pass  # a refusal is an answer
        return ""
