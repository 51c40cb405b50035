"""The contract of features: the list, and what they must not share."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.broker.app import FEATURES
from rockhopper.broker.feature import Feature, Wrap, check_features
from rockhopper.broker.kernel.state_records import StateKind
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout
from tests.support.peers import Clock
from tests.support.served_broker import ServedBroker

FOLDER = Path(__file__).parents[3] / "rockhopper/broker/features"


def declared(name: str, *requires: str) -> Feature:
    return cast(Feature, SimpleNamespace(name=name, requires=requires))


def test_the_list_of_the_broker_is_in_order() -> None:
    check_features(FEATURES)


def test_each_feature_is_named_as_its_folder() -> None:
    modules = {feature.name: type(feature).__module__ for feature in FEATURES}
    assert modules == {name: f"rockhopper.broker.features.{name}.feature" for name in modules}
    assert all((FOLDER / name / "feature.py").is_file() for name in modules)


def test_a_feature_stands_behind_what_it_requires() -> None:
    check_features([declared("a"), declared("b", "a")])
    with pytest.raises(ValueError, match="the feature b must come after a"):
        check_features([declared("b", "a"), declared("a")])


def test_a_feature_is_listed_once() -> None:
    with pytest.raises(ValueError, match="the feature a is listed twice"):
        check_features([declared("a"), declared("a")])


def test_no_two_states_share_a_table_or_a_kind(tmp_path: Path) -> None:
    states = [feature.state(StoreLayout(tmp_path), BrokerClock()) for feature in FEATURES]
    kinds = Counter([*(kind for state in states for kind in state.kinds), *map(int, StateKind)])
    assert [kind for kind, count in kinds.items() if count > 1] == []
    names = Counter(table.path.name for state in states for table in state.tables)
    assert [name for name, count in names.items() if count > 1] == []


async def test_a_code_that_two_serve_is_refused(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path, Clock(), {})
    taken: Any = next(iter(build_table(broker)))
    broker.features["greedy"] = cast(Any, SimpleNamespace(processors={taken: None}))
    with pytest.raises(ValueError, match=f"the feature greedy serves the code {taken}"):
        build_table(broker)
    broker.store.abandon()


async def test_a_code_that_two_wrap_is_refused(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path, Clock(), {})
    code = next(code for code, row in build_table(broker).items() if row.wrap is None)
    for name in ("first", "second"):
        part = SimpleNamespace(processors={}, wraps={code: Wrap((), cast(Any, None))})
        broker.features[name] = cast(Any, part)
    with pytest.raises(ValueError, match=f"two features wrap the code {code}"):
        build_table(broker)
    broker.store.abandon()
