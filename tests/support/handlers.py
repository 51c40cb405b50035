"""Handlers of frames for a server without a broker."""

from collections.abc import Callable
from typing import cast

from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.server import RemotingConnection
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.command import Command
from rockhopper.protocol.frame import Frame


class Ignoring:
    """A handler that takes all frames and answers none."""

    def serve_frames(self, _connection: RemotingConnection, frames: list[Frame]) -> int:
        """Take all *frames*."""
        return len(frames)


class _Dispatching:
    def __init__(
        self, dispatch: Callable[[RemotingConnection, Command], bytes], gate: LeaseGate | None
    ) -> None:
        self.dispatch = dispatch
        self.gate = gate


def dispatching(
    dispatch: Callable[[RemotingConnection, Command], bytes], gate: LeaseGate | None = None
) -> Dispatcher:
    """Return a dispatcher that answers each request by *dispatch*."""
    return cast(Dispatcher, _Dispatching(dispatch, gate))
