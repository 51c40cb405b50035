"""The mutants that are drawn, and the record that is kept of them."""

import json
from pathlib import Path

import pytest

from tests.house import mutants
from tests.house.mutants import Mutant, mutants_of, write_record
from tests.house.tree import Module

SOURCE = '''"""A module."""

LIMIT = 3


def reached(count: int, log: object) -> bool:
    """Say whether it is reached."""
    log.info("asked")
    return count >= LIMIT
'''


@pytest.fixture
def module(tmp_path: Path) -> Module:
    (tmp_path / "module.py").write_text(SOURCE)
    return Module(tmp_path, Path("module.py"))


def test_code_is_changed_and_texts_constants_and_the_log_are_not(module: Module) -> None:
    changed = [
        mutant.apply(SOURCE.encode()).decode().splitlines()[-1].strip()
        for mutant in mutants_of(module)
    ]
    assert changed == ["return None", "return count  >  LIMIT"]


def test_the_record_names_what_no_test_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "RECORD", tmp_path / "results" / "mutants.json")
    outcomes = {
        Mutant("broker/a.py", 4, 10, 12, "<"): "survived",
        Mutant("broker/a.py", 5, 20, 22, "<"): "killed",
        Mutant("broker/a.py", 6, 30, 32, "<"): "hangs",
    }
    write_record("abc", 1, outcomes)
    record = json.loads(mutants.RECORD.read_text())
    assert (record["commit"], record["drawn"], record["noticed"]) == ("abc", 3, 2)
    assert record["missed"] == [{"place": "broker/a.py:4", "becomes": "<", "outcome": "survived"}]
