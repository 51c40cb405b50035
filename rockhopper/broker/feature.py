"""Feature: the declaration of a folder below features/; the rest of the broker names no feature.

Whatever is not needed to append, read, notify and commit is a feature. Its folder holds its code,
its processors with their permissions, its state and its gRPC half. ``app.py`` has the one list of
features; deleting a folder and its line there leaves a broker that starts and serves the rest
(``make deletable FEATURE=name`` tries it). To add one, write

    features/<name>/feature.py   the declaration
    features/<name>/state.py     its state, if it keeps any
    features/<name>/…            the rest of its code

A feature's life, between the kernel's:

    state()   before the store opens. A follower of a replica set makes only this
    build()   over the open store; no I/O
    then the steps of a Part (server/loop/part.py): open, start, expire, purge, stop, close
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rockhopper.broker.hot.parts import FastPath, HalvesOpened
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.kernel import Kernel
from rockhopper.broker.kernel.send.sender import DivertHalf, PrepareSend
from rockhopper.broker.kernel.state import NoState, State
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.server.remoting.dispatcher import Row, Wrap
from rockhopper.broker.settings.store_layout import StoreLayout

__all__ = [
    "FastPath",
    "Feature",
    "FeaturePart",
    "GrpcHalf",
    "NoState",
    "RpcRow",
    "State",
    "Wrap",
    "check_features",
]


class RpcRow(NamedTuple):
    """The declaration of an RPC, beside the function that serves it."""

    serve: Callable[..., Any]
    """Handles a call and its request, and returns the reply; None if the reply follows later."""
    demands: Callable[[Any], Any]
    """Returns the permissions that a request needs (gateways/grpc/permissions.py)."""
    promises_state: bool = True
    """Whether a reply promises state, as for a request code (Row in server/remoting)."""
    is_gathered: bool = False
    """Whether the calls of a turn wait for its end, and ``settle`` completes them together."""


class GrpcHalf(Protocol):
    """The handlers of a feature for RocketMQ 5 clients, while a gateway is open."""

    @property
    def rpcs(self) -> Mapping[str, RpcRow]:
        """RPC → its row."""

    def settle(self) -> None:
        """Complete the gathered calls of a turn. Raises nothing."""

    def close(self) -> None:
        """Act no more: the gateway closes."""


class FeaturePart(Part):
    """The working part of a feature, and its contributions to the kernel."""

    processors: Mapping[int, Row] = {}
    """Request code → its row. No two features serve the same code."""
    wraps: Mapping[int, Wrap] = {}
    """Request code → what the feature does around its processor, which may be another feature's.
    The permission of the processor stays. No two features wrap the same code."""
    prepare_send: Mapping[str, PrepareSend] = {}
    """Property → a function that changes the queue and the properties of single messages with this
    property, on the general path. Functions of earlier features run first."""
    divert_half: DivertHalf | None = None
    """A function that stores half messages in another queue first. It runs after ``prepare_send``
    of all features; functions of earlier features run first."""
    fast: FastPath | None = None
    """What the hot pass may serve for the feature without the dispatcher."""
    halves_opened: HalvesOpened | None = None
    """Called with the half messages that compiled code has stored. If no feature has it, half
    messages take the general path."""

    def metrics(self) -> Iterable[Family]:
        """Return the feature's metrics; called for each scrape."""
        return ()

    def used_groups(self) -> Iterable[str]:
        """Return the groups that the feature keeps state of; they are not deleted as unused."""
        return ()

    def open_grpc(self, sessions: Any) -> GrpcHalf | None:
        """Return the handlers for RocketMQ 5 clients while a gateway is open; None without RPCs.

        *sessions* are the gateway's clients. Called only if protobuf is installed, so modules that
        need it are imported inside.
        """


class Feature(Protocol):
    """The declaration of one feature: a class without attributes of its own."""

    name: str
    """As in ``make deletable FEATURE=name``; the name of the folder."""
    requires: tuple[str, ...]
    """Features that this one uses: they come before it in the list, and deleting one deletes it."""
    tests: tuple[str, ...]
    """Files, folders and node ids of tests, from the root of the checkout, that go with it."""

    def state(self, layout: StoreLayout, clock: BrokerClock) -> State:
        """Return the feature's state; reads no file."""

    def build(self, kernel: Kernel, state: Any) -> FeaturePart:
        """Return the feature's part, built on its *state*; no I/O."""


def check_features(features: Sequence[Feature]) -> None:
    """Check the list of features.

    Raises:
        ValueError: two features share a name, or one comes before a feature that it requires.
    """
    known: set[str] = set()
    for feature in features:
        if feature.name in known:
            raise ValueError(f"the feature {feature.name} is listed twice")
        if missing := sorted(set(feature.requires) - known):
            raise ValueError(f"the feature {feature.name} must come after {missing[0]}")
        known.add(feature.name)
