"""A broker for what Spark calls, and a topic for each test."""

from collections.abc import Iterator

import pytest

from rockhopper.pipeline.network import discovery
from tests.support.pipeline_broker import PipelineBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker: PipelineBroker, request: pytest.FixtureRequest) -> str:
    """A topic of this test alone, with as many queues as its module says."""
    name = "T" + str(abs(hash(request.node.nodeid)))
    broker.create(name, request.module.QUEUES)
    return name


@pytest.fixture(autouse=True)
def _routes_are_asked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "ROUTES_KEPT_S", 0.0)
