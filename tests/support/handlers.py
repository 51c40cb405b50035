"""Handlers of frames for a server without a broker."""

from collections.abc import Callable
from typing import cast

from rockhopper.broker.server.remoting.connection import FrameHandler, RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.protocol.command import Command
from rockhopper.protocol.frame import Frame


class Ignoring(FrameHandler):
    """A handler that takes all frames and answers none."""

    def serve_frames(self, _connection: RemotingConnection, frames: list[Frame]) -> int:
        """Take all *frames*."""
        return len(frames)


class _Dispatching:
    gate = None

    def __init__(self, dispatch: Callable[[RemotingConnection, Command], bytes]) -> None:
        self.dispatch = dispatch


def dispatching(dispatch: Callable[[RemotingConnection, Command], bytes]) -> Dispatcher:
    """Return a dispatcher that answers each request by *dispatch*."""
    return cast(Dispatcher, _Dispatching(dispatch))
