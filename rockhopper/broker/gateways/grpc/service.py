"""GrpcService: the table of RPCs, and the steps before and after each call.

identity, by the header fields        without a proof, the caller is anonymous
permissions                           by RPC and by the resources in the request (permissions.py)
the activity                          replies now or later
errors                                become the status of the reply
"""

import re
from collections.abc import Mapping
from typing import Any

from rockhopper.broker.feature import RpcRow
from rockhopper.broker.gateways.grpc.activities.producing import Producing
from rockhopper.broker.gateways.grpc.call import Call, Demands, Rpc
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE


class GrpcService:
    """All RPCs of one broker."""

    def __init__(
        self,
        rpcs: Mapping[str, RpcRow],
        access: AccessRules,
        producing: Producing,
        times: RequestTimes | None = None,
        gate: LeaseGate | None = None,
    ) -> None:
        """*producing* stores the messages that were staged.

        *times* records the times of answers. Replies that acknowledge state pass *gate*.
        """
        self._producing = producing
        self._rpcs = {
            f"/{SERVICE}/{name}": Rpc(
                METHODS[name],
                row.serve,
                row.demands,
                times,
                _snake(name),
                gate if row.promises_state else None,
            )
            for name, row in rpcs.items()
        }
        self.access = access
        self.find = self._rpcs.get
        """Returns the RPC of a path, or None."""

    def register_rpcs(self, rpcs: Mapping[str, Rpc]) -> None:
        """Add RPCs of other services, by path."""
        self._rpcs |= rpcs

    def settle(self) -> None:
        """Store the staged messages."""
        self._producing.settle()

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
        call.principal = call.connection.identity.identify(self.access, call.fields)
        call.admit(self.access, demands)


def _snake(name: str) -> str:
    """Convert ``SendMessage`` to ``send_message``, the form of codes in RocketMQ's metrics."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
