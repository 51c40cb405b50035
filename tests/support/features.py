"""Access of kernel tests to features: whether one exists, and its part.

A feature's own tests are deleted with its folder. A test of all request codes, all tables and so on
leaves out what belongs to a missing feature.
"""

from typing import Any

import pytest

from rockhopper.broker.app import FEATURES
from rockhopper.broker.kernel.parts import BrokerCore

NAMES = frozenset(feature.name for feature in FEATURES)


def needs(name: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test if the feature *name* was deleted."""
    return pytest.mark.skipif(name not in NAMES, reason=f"there is no feature {name}")


def pop_of(broker: BrokerCore) -> Any:
    """Return the PopService of *broker*."""
    return broker.features["pop"].service  # type: ignore[attr-defined]


def transactions_of(broker: BrokerCore) -> Any:
    """Return the Transactions of *broker*."""
    return broker.features["transactions"]


def sinks_of(broker: BrokerCore) -> Any:
    """Return the SinkPublisher of *broker*."""
    return broker.features["sinks"].publisher  # type: ignore[attr-defined]
