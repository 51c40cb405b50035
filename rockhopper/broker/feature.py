"""Feature: what a folder below features/ declares, once; the broker names no feature.

Whatever is not needed to append, read, notify and commit is a feature. Its folder holds its code,
its processors with their permissions, its state and its gRPC half. ``app.py`` has the one list of
features; deleting a folder and its line there leaves a broker that starts and serves the rest
(``make deletable FEATURE=name`` tries it). To add one, write

    features/<name>/feature.py   the declaration
    features/<name>/state.py     what it keeps, if anything
    features/<name>/…            what it does

A feature's life, between the kernel's:

    state()   before the store opens. A follower of a replica set makes this alone
    build()   over the open store; no I/O
    then the six steps of a Part (server/loop/part.py): open, start, expire, stop, close
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.send.sender import DivertSend, PrepareSend
from rockhopper.broker.kernel.state import NoState, State
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.server.remoting.dispatcher import Processor, Row
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.protocol.frame import Frame

__all__ = [
    "FastPath",
    "Feature",
    "FeaturePart",
    "GrpcHalf",
    "NoState",
    "State",
    "Wrap",
    "check_features",
]

Wrap = Callable[[Processor], Processor]


class FastPath(Protocol):
    """What the hot pass serves for a feature: consecutive plain requests of one kind."""

    code: int
    prefix: bytes
    """The beginning of the JSON headers of these requests."""

    def serve(self, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve requests from frame *first* on, and hand their answers to *batch*.

        Returns how many were served; 0, with nothing done, if the first must take the general path.
        """


class GrpcHalf(Protocol):
    """What serves RocketMQ 5 clients for a feature, while a gateway is open."""

    @property
    def rpcs(self) -> Mapping[str, tuple[Callable[..., Any], Callable[[Any], Any]]]:
        """RPC → the function that serves it, and its permissions."""

    def close(self) -> None:
        """Act no more: the gateway closes."""


class FeaturePart(Part):
    """What a feature does in a broker, and what it contributes to the kernel."""

    processors: Mapping[int, Row] = {}
    """Request code → processor and permission. No two features serve the same code."""
    wraps: Mapping[int, Wrap] = {}
    """Request code → what to put around the processor of it, whoever serves it. The permission
    stays that of the processor. Wraps of later features stand around those of earlier ones."""

    prepare_send: Mapping[str, PrepareSend] = {}
    """Property → what to do with the queue and the properties of a single message that has it, on
    the general path. Those of earlier features come first."""
    divert_send: DivertSend | None = None
    """Which single messages are stored elsewhere first; asked after all have prepared the message,
    those of earlier features first."""
    fast: FastPath | None = None
    """What the hot pass may serve for the feature without the dispatcher."""
    halves_opened: Callable[[list[tuple[int, int, str]]], None] | None = None
    """Takes the half messages that compiled code has stored: queue offset, log offset and producer
    group of each. Without it, compiled code leaves half messages to the general path."""

    def metrics(self) -> Iterable[Family]:
        """Return what /metrics shows of the feature; called for each scrape."""
        return ()

    def used_groups(self) -> Iterable[str]:
        """Return groups that must not be deleted as unused: the feature keeps something of them."""
        return ()

    def open_grpc(self, sessions: Any) -> GrpcHalf | None:
        """Return what serves RocketMQ 5 clients, whose *sessions* those are, while a gateway is.

        Called only where protobuf is installed: modules that need it are imported here.
        """


class Feature(Protocol):
    """The declaration of one feature: a class without attributes of its own."""

    name: str
    """As in ``make deletable FEATURE=name``; the name of the folder."""
    requires: tuple[str, ...]
    """Features that stand in front of this one in the list, and are deleted with it."""
    tests: tuple[str, ...]
    """Files, folders and node ids of tests, from the root of the checkout, that go with it."""

    def state(self, layout: StoreLayout, clock: BrokerClock) -> State:
        """Return what the feature keeps; reads no file."""

    def build(self, kernel: Kernel, state: Any) -> FeaturePart:
        """Return the part, over what ``state`` returned; no I/O."""


def check_features(features: Sequence[Feature]) -> None:
    """Check the list of features.

    Raises:
        ValueError: a name stands twice, or a feature in front of one that it requires.
    """
    known: set[str] = set()
    for feature in features:
        if feature.name in known:
            raise ValueError(f"the feature {feature.name} is listed twice")
        if missing := sorted(set(feature.requires) - known):
            raise ValueError(f"the feature {feature.name} must stand behind {missing[0]}")
        known.add(feature.name)
