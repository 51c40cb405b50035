"""What tests of the kernel know of features: whether there is one, and its part.

A feature's own tests go with its folder. A test that goes through all of something (every request
code, every table) leaves out what belongs to a feature that is not there.
"""

from typing import Any

import pytest

from rockhopper.broker.app import FEATURES
from rockhopper.broker.kernel.parts import ServingParts

NAMES = frozenset(feature.name for feature in FEATURES)


def needs(name: str) -> pytest.MarkDecorator:
    """Return a mark that leaves a test out where the feature *name* was deleted."""
    return pytest.mark.skipif(name not in NAMES, reason=f"there is no feature {name}")


def sinks_of(broker: ServingParts) -> Any:
    """Return the SinkPublisher of *broker*."""
    return broker.features["sinks"].publisher  # type: ignore[attr-defined]
