"""GrpcService: the table of RPCs, and what happens to every call before and after it is served.

who asks, by the header fields        who proves nothing is nobody
what he must be allowed               of each RPC, as needs of what the request names
the activity                          replies at once or later
errors                                the status of the reply
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rockhopper.broker.access.access import Access, Action, Resource
from rockhopper.broker.grpc.call import Call
from rockhopper.broker.grpc.statuses import StatusError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import METHODS, SERVICE, Method

Serve = Callable[[Call, Any], Any]
"""Serves a request of a call: returns the reply, or None when it comes later or was written."""

Demands = Iterable[tuple[tuple[Action, ...], Resource]]
"""What must be allowed, all of it; of the actions of each any one is enough."""


class Rpc(NamedTuple):
    """What serves an RPC, and what its caller must be allowed."""

    method: Method
    serve: Serve
    demands: Callable[[Any], Demands]
    """Of a request. Raises StatusError for one that names nothing."""


class GrpcService:
    """All RPCs of one broker."""

    def __init__(
        self,
        rpcs: dict[str, tuple[Serve, Callable[[Any], Demands]]],
        access: Access,
        on_opened: Callable[[Call], None],
        on_heard: Callable[[Call], None],
    ) -> None:
        """*on_opened* and *on_heard* are told when a client begins and ends to stream requests."""
        self._rpcs = {
            f"/{SERVICE}/{name}": Rpc(METHODS[name], serve, demands)
            for name, (serve, demands) in rpcs.items()
        }
        self._access = access
        self.open = on_opened
        self.heard = on_heard
        self.find = self._rpcs.get
        """The RPC of a path; None if there is none."""

    def serve(self, call: Call, request: Any) -> None:
        """Serve one request of *call*."""
        try:
            if not self._access.is_open:
                self._check(call, request)
            reply = call.rpc.serve(call, request)
        except Exception as error:
            call.refuse(error)
            return
        if reply is not None:
            call.reply(reply)

    def _check(self, call: Call, request: Any) -> None:
        principal = call.principal
        for actions, resource in call.rpc.demands(request):
            if not any(self._access.may(principal, action, resource) for action in actions):
                wanted = " or ".join(action.value for action in actions)
                raise StatusError(
                    Code.UNAUTHORIZED,
                    f"{principal.user or 'nobody'} at {principal.host} may not {wanted} "
                    f"{resource.kind.value}:{resource.name[:200]}",
                )
