"""KeyValueTable: RocketMQ's file, values by namespace, and what is refused of it."""

import json
from pathlib import Path

import pytest

from rockhopper.broker.nameserver.values.kv_config import KeyValueTable

FILE = {"configTable": {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4"}, "N": {"k": "1"}}}


@pytest.fixture
def table(tmp_path: Path) -> KeyValueTable:
    return KeyValueTable(tmp_path / "kvConfig.json")


def test_rocketmqs_file_is_read_and_written(tmp_path: Path, table: KeyValueTable) -> None:
    table.path.write_text(json.dumps(FILE))
    assert table.load()
    assert table.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4"
    assert table.namespace("N") == {"k": "1"}
    table.save()
    assert json.loads(table.path.read_text()) == FILE


def test_what_is_not_there_is_none(table: KeyValueTable) -> None:
    assert table.get("N", "k") is None
    assert table.namespace("N") == {}
    table.delete("N", "k")
    table.clear()
    assert table.is_saved


def test_values_are_put_replaced_and_deleted(table: KeyValueTable) -> None:
    table.put("N", "k", "1")
    table.put("N", "k", "2")
    table.put("M", "k", "3")
    assert not table.is_saved
    assert (table.get("N", "k"), table.get("M", "k")) == ("2", "3")
    table.delete("N", "k")
    assert table.get("N", "k") is None
    assert table.get("M", "k") == "3"
    table.clear()
    assert table.to_json() == {"configTable": {}}


def test_a_namespace_is_handed_out_as_a_copy(table: KeyValueTable) -> None:
    table.put("N", "k", "1")
    table.namespace("N")["k"] = "2"
    assert table.get("N", "k") == "1"


def test_numbers_in_a_file_become_text(table: KeyValueTable) -> None:
    table.from_json({"configTable": {"N": {"k": 4}}})
    assert table.get("N", "k") == "4"


@pytest.mark.parametrize("document", [{}, {"configTable": []}, {"configTable": None}])
def test_a_file_without_the_table_is_refused(
    table: KeyValueTable, document: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="configTable"):
        table.from_json(document)
