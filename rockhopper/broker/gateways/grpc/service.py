"""GrpcService: the table of RPCs, and the steps before and after each call.

identity, by the header fields        without a proof, the caller is anonymous
permissions                           by RPC and by the resources in the request (permissions.py)
the activity                          replies now or later
errors                                become the status of the reply
"""

import re
from collections.abc import Iterable, Mapping

from rockhopper.broker.feature import GrpcHalf, RpcRow
from rockhopper.broker.gateways.grpc import permissions
from rockhopper.broker.gateways.grpc.activities.producing import Producing
from rockhopper.broker.gateways.grpc.call import Call, Demands, Rpc
from rockhopper.broker.server.loop.latencies import RequestTimes
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.broker.users.access import AccessRules
from rockhopper.protocol.grpc_v2.codes import GrpcStatus
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE

CALLS_PER_PASS_MAX = 64
"""Calls that wait for the end of the turn; they take about 2 ms."""


class GrpcService:
    """All RPCs of one broker."""

    def __init__(
        self,
        rpcs: Mapping[str, RpcRow],
        access: AccessRules,
        producing: Producing,
        times: RequestTimes | None = None,
        gate: LeaseGate | None = None,
        halves: Iterable[GrpcHalf] = (),
    ) -> None:
        """*producing* stores the messages that were staged; *halves* serve the features' RPCs.

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
                row.is_gathered,
            )
            for name, row in rpcs.items()
        }
        self.access = access
        self._halves = list(halves)
        self._waiting: list[tuple[Call, bytes]] = []
        """The gathered calls that were read in this iteration of the loop, of all connections."""
        self.find = self._rpcs.get
        """Returns the RPC of a path, or None."""

    def register_rpcs(self, rpcs: Mapping[str, Rpc]) -> None:
        """Add RPCs of other services, by path."""
        self._rpcs |= rpcs

    def settle(self) -> None:
        """Serve the calls that wait, with one write for all of their messages."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for call, message in waiting:
                is_send = call.rpc.method.name == "SendMessage"
                if not (is_send and self._serve_plain_send(call, message)):
                    self._serve(call, message)
            self._producing.settle()
            for half in self._halves:
                half.settle()

    def serve(self, call: Call, message: bytes) -> None:
        """Serve one encoded request of *call*; sends, and some others, wait until ``settle``."""
        if call.rpc.is_gathered:
            self._waiting.append((call, message))
            if len(self._waiting) >= CALLS_PER_PASS_MAX:
                self.settle()
            return
        # The request must see the effects of those before it.
        self.settle()
        self._serve(call, message)

    def _serve_plain_send(self, call: Call, message: bytes) -> bool:
        """Serve a send with a plain message, if compiled code can read it."""
        send = self._producing.read_plain(call, message)
        if send is None:
            return False
        try:
            if not self.access.is_open:
                self._admit(call, permissions.of_plain_send(send.topic))
            return self._producing.send_plain(call, send)
        except Exception as error:
            call.refuse(error)
            return True

    def _serve(self, call: Call, message: bytes) -> None:
        try:
            request = call.rpc.method.request.FromString(message)
        except Exception as error:
            # An exception of protobuf, from whichever implementation is installed.
            call.connection.fail(call, GrpcStatus.INTERNAL, f"the request cannot be read: {error}")
            return
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
