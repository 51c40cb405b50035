"""GrpcService: the table of RPCs, and the steps before and after each call.

identity, by the header fields        without a proof, the caller is anonymous
permissions                           by RPC and by the resources in the request (permissions.py)
the activity                          replies now or later
errors                                become the status of the reply
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rockhopper.broker.gateways.grpc.call import Call, Demands, Rpc
from rockhopper.broker.gateways.grpc.identity import identify
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules, name_missing
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE

PROMISES_NOTHING = frozenset(
    {
        "QueryRoute",
        "QueryAssignment",
        "Telemetry",
        "Heartbeat",
        "NotifyClientTermination",
        "SendMessage",
        "ReceiveMessage",
        "PullMessage",
        "GetOffset",
        "QueryOffset",
    }
)
"""RPCs whose replies acknowledge no state, and may leave at any time; see lease_gate.py."""

Served = tuple[Callable[[Call, Any], Any], Callable[[Any], Demands]]
"""The function of an RPC and its permissions; see Rpc."""


class GrpcService:
    """All RPCs of one broker."""

    def __init__(
        self,
        rpcs: Mapping[str, Served],
        access: AccessRules,
        on_opened: Callable[[Call], None],
        on_heard: Callable[[Call], None],
        settle: Callable[[], None],
        times: RequestTimes | None = None,
        gate: LeaseGate | None = None,
    ) -> None:
        """*on_opened* and *on_heard* are called when a client starts and ends a stream of requests.

        *settle* stores the staged messages. *times* records the times of answers. Replies that
        acknowledge state pass *gate*.
        """
        self.settle = settle
        self._rpcs = {
            f"/{SERVICE}/{name}": Rpc(
                METHODS[name],
                serve,
                demands,
                times,
                _snake(name),
                None if name in PROMISES_NOTHING else gate,
            )
            for name, (serve, demands) in rpcs.items()
        }
        self.access = access
        self.open = on_opened
        self.heard = on_heard
        self.find = self._rpcs.get
        """Returns the RPC of a path, or None."""

    def add(self, rpcs: Mapping[str, Rpc]) -> None:
        """Add RPCs of other services, by path."""
        self._rpcs |= rpcs

    def serve(self, call: Call, request: Any) -> None:
        """Serve one request of *call*; sends stay staged until ``settle``."""
        if call.rpc.method.name != "SendMessage":
            # The request must see the messages that were sent before it.
            self.settle()
        try:
            if not self.access.is_open and call.rpc.demands is not None:
                self._admit(call, call.rpc.demands(request))
            reply = call.rpc.serve(call, request)
        except Exception as error:
            call.refuse(error)
            return
        if reply is not None:
            call.reply(reply)

    def _admit(self, call: Call, demands: Demands) -> None:
        line = call.connection
        line.proved = identify(self.access, call.fields, line.peer_host, line.proved, line.failures)
        if line.proved is not None:
            call.principal = line.proved.principal
        demands = tuple(demands)
        self._check(call, demands)
        call.check_access = partial(self._check, call, demands)

    def _check(self, call: Call, demands: Demands) -> None:
        principal = call.principal
        missing = [
            (actions, resource)
            for actions, resource in demands
            if not self.access.may_any(principal, actions, resource)
        ]
        if missing:
            raise GrpcStatusError(Code.UNAUTHORIZED, name_missing(principal, missing))


def _snake(name: str) -> str:
    """Convert ``SendMessage`` to ``send_message``, the form of codes in RocketMQ's metrics."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
