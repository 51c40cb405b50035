"""The command ``archive``: the schema's file, the size of a split, and which brokers."""

from pathlib import Path

import pytest

from tests.support.called_jobs import call


def test_the_schema_is_the_text_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.json").write_text('{"type": "object"}')
    flags = ["--decode", "json", "--schema", str(tmp_path / "order.json")]
    _, asked = call(monkeypatch, "archive", "history", "--path", "store", *flags)
    assert (asked["decode"], asked["schema"]) == ("json", '{"type": "object"}')


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_schema_that_cannot_be_read_is_named(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "order.json"
    if content is not None:
        file.write_bytes(content)
    flags = ["--path", "store", "--schema", str(file)]
    result, asked = call(monkeypatch, "archive", "history", *flags)
    assert (result.exit_code, asked) == (2, {})
    assert f"Invalid value for --schema: {file} cannot be read" in result.stderr


def test_a_split_has_a_page_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    _, asked = call(monkeypatch, "archive", "h", "--path", "s", "--split-size", "4k")
    assert asked["split_size_bytes"] == 4096
    result, asked = call(monkeypatch, "archive", "h", "--path", "s", "--split-size", "1k")
    assert (result.exit_code, asked) == (2, {})
    assert "at least 4096 bytes" in result.stderr


def test_the_files_of_a_store_need_no_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, "archive", "history", "--path", "store", "--without", "b")
    assert result.output == "noted\n"
    assert (asked["directory"], asked["nameserver"], asked["without"]) == ("history", None, ("b",))
