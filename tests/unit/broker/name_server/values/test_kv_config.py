"""KeyValueTable: RocketMQ's file, values by namespace, and what is refused of it."""

import json
from pathlib import Path

import pytest

from rockhopper.broker.name_server.values import kv_config as module
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.users.errors import Refusal

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
    table.set_value("N", "k", "1")
    table.set_value("N", "k", "2")
    table.set_value("M", "k", "3")
    assert not table.is_saved
    assert (table.get("N", "k"), table.get("M", "k")) == ("2", "3")
    table.delete("N", "k")
    assert table.get("N", "k") is None
    assert table.get("M", "k") == "3"
    table.clear()
    assert table.to_json() == {"configTable": {}}


def test_a_namespace_is_handed_out_as_a_copy(table: KeyValueTable) -> None:
    table.set_value("N", "k", "1")
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


@pytest.mark.parametrize(
    ("namespace", "key", "value", "reason"),
    [
        ("n" * 256, "k", "v", "at most 255 characters"),
        ("N", "k" * 256, "v", "at most 255 characters"),
        ("N", "k", "v" * 65_537, "65537 characters; at most 65536"),
    ],
)
def test_names_and_values_have_a_length(
    table: KeyValueTable, namespace: str, key: str, value: str, reason: str
) -> None:
    with pytest.raises(Refusal, match=reason):
        table.set_value(namespace, key, value)
    assert table.is_saved
    table.set_value("n" * 255, "k" * 255, "v" * 65_536)


def test_so_many_values_are_kept_and_no_more(
    table: KeyValueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VALUES_MAX", 2)
    table.set_value("N", "a", "1")
    table.set_value("M", "a", "1")
    with pytest.raises(Refusal, match="2 values are stored"):
        table.set_value("N", "b", "1")
    table.set_value("N", "a", "2")
    table.delete("M", "a")
    table.set_value("N", "b", "1")
    table.take_entry("N", {"c": "1"})
    table.set_value("N", "d", "1")
    table.take_entry("N", None)
    table.set_value("N", "e", "1")
    table.set_value("N", "f", "1")
    table.clear()
    table.from_json({"configTable": {"N": {"a": "1"}}})
    table.set_value("N", "g", "1")
    with pytest.raises(Refusal, match="2 values are stored"):
        table.set_value("N", "h", "1")


def test_all_values_together_have_a_length(
    table: KeyValueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOTAL_LENGTH_MAX", 10)
    table.set_value("N", "k", "123456789")
    with pytest.raises(Refusal, match="at most 10 characters"):
        table.set_value("N", "l", "")
    table.set_value("N", "k", "1234567")
    table.set_value("N", "l", "1")
    with pytest.raises(Refusal, match="at most 10 characters"):
        table.set_value("N", "l", "12")
    table.delete("N", "k")
    table.set_value("N", "l", "123456789")


def test_a_file_with_more_than_that_is_read_and_may_shrink(
    table: KeyValueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.from_json({"configTable": {"N": {"k": "123", "l": "123"}}})
    monkeypatch.setattr(module, "TOTAL_LENGTH_MAX", 4)
    table.set_value("N", "k", "12")
    assert table.get("N", "k") == "12"


def test_a_value_that_is_kept_already_is_no_change(tmp_path: Path) -> None:
    table = KeyValueTable(tmp_path / "kvConfig.json")
    table.set_value("N", "k", "1")
    table.save()
    table.set_value("N", "k", "1")
    assert table.is_saved


def test_a_namespace_without_values_is_not_kept(table: KeyValueTable) -> None:
    table.set_value("N", "k", "1")
    table.delete("N", "k")
    assert table.to_json() == {"configTable": {}}
    assert table.entry("N") is None


async def test_values_that_come_while_one_is_saved_share_the_next_save(
    table: KeyValueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = table._write

    def count() -> None:
        writes.append(1)
        write()

    monkeypatch.setattr(table, "_write", count)
    table.start_saving()
    for number in range(1000):
        table.set_value("N", f"k{number}", "v")
    await table.saved()
    assert len(writes) <= 2
    assert len(json.loads(table.path.read_text())["configTable"]["N"]) == 1000
