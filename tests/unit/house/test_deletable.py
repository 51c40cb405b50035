"""A feature is taken out of a copy: which others go with it, and what is left of app.py."""

from types import SimpleNamespace
from typing import Any, cast

from tests.house.deletable import main, with_dependents, without

APP = """\
from rockhopper.broker.feature import Feature
from rockhopper.broker.features.a.feature import AFeature
from rockhopper.broker.features.ab.feature import (
    AbFeature,
)

FEATURES: tuple[Feature, ...] = (
    AFeature(),
    AbFeature(),
)
AFTER = 1
"""


def test_a_feature_leaves_with_its_import_and_its_place() -> None:
    left = without(APP, "ab")
    assert "AbFeature" not in left
    assert "FEATURES: tuple[Feature, ...] = (AFeature(), )\nAFTER = 1" in left
    assert "FEATURES: tuple[Feature, ...] = ()" in without(left, "a")


def test_what_requires_a_feature_goes_with_it() -> None:
    def feature(name: str, *requires: str) -> Any:
        return cast(Any, SimpleNamespace(name=name, requires=requires))

    features = (feature("a"), feature("b", "a"), feature("c"), feature("d", "b"))
    assert [each.name for each in with_dependents(features, "a")] == ["a", "b", "d"]
    assert [each.name for each in with_dependents(features, "c")] == ["c"]


def test_without_a_name_all_arguments_are_options_of_pytest() -> None:
    parsed = main.make_context("deletable", ["--", "--numprocesses", "1"]).params
    assert (parsed["name"], parsed["pytest_options"]) == (None, ("--numprocesses", "1"))
