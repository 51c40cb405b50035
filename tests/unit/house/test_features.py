"""Features: what they declare, and who knows of them."""

from pathlib import Path

from tests.house import features
from tests.support.small_house import house

DECLARATION = (
    "class Sinks:\n"
    '    name = "sinks"\n'
    "    requires: tuple[str, ...] = ()\n"
    '    tests = ("tests/unit/sinks", "tests/test_whole.py")\n'
)


def test_a_declared_feature_has_the_tests_below_its_paths(tmp_path: Path) -> None:
    test = "def test_it(): ...\ndef helper(): ...\n"
    tree = house(
        tmp_path,
        broker__features__sinks__feature=DECLARATION,
        broker__features__pop__service="class Pop:\n    name = 'pop'\n",
        tests__unit__sinks__test_a=test,
        tests__test_whole=test,
        tests__unit__sinks_more__test_b=test,
        tests__test_whole_too=test,
    )
    assert features.shares(tree) == {"broker.features.sinks": 50.0}


def test_files_outside_that_import_features_are_named_with_these(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__features__pop__service="from rockhopper.broker.features.pop import lanes\n",
        broker__features__pop__lanes="",
        broker__features__sinks__notes="from rockhopper.broker.features.pop import lanes\n",
        broker__app=(
            "from rockhopper.broker.features.pop import lanes, service\n"
            "def f():\n    from rockhopper.broker.features.sinks.notes import Notes\n"
        ),
    )
    assert sorted(features.importers(tree)) == [
        "broker/app.py: broker.features.pop, broker.features.sinks",
        "broker/features/sinks/notes.py: broker.features.pop",
    ]


def test_a_stateful_request_needs_the_files_whose_code_names_the_feature(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__features__sinks__notes="class SinkNotes: ...\n",
        broker__table="def rows(sink): ...\n",
        broker__prose='"""Knows of no sink."""\n# sink\n',
        broker__settings__config="sink_bytes = 1\n",
        client__sink="sink = 1\n",
    )
    found = list(features.files_for_stateful_request(tree))
    assert found[features.OWN_FILES_MIN :] == ["broker/table.py"]
