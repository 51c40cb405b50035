"""How messages look, for people and for programs."""

import base64
import json
import re
from pathlib import Path

import pytest

from rockhopper.client.commands import output
from rockhopper.client.commands.output import (
    convert_facts,
    format_count,
    format_time,
    message_json,
    print_table,
    write_line,
    write_note,
)
from rockhopper.client.commands.screen.fitting import cut, pad
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage


def received(body: bytes, sys_flag: int = 0, **properties: str) -> ReceivedMessage:
    stored = StoredMessage("orders", 3, 17, 4096, body, sys_flag=sys_flag, properties=properties)
    return ReceivedMessage(MessageQueue("orders", "broker-a", 3), stored)


def test_the_json_of_a_message_has_the_fields_that_programs_rely_on() -> None:
    value = message_json(received(b"hello", KEYS="o-1 o-2", TAGS="new"))
    wanted = {name: value[name] for name in ("topic", "queue", "offset", "key", "tags", "body")}
    assert wanted == {
        "topic": "orders",
        "queue": 3,
        "offset": 17,
        "key": "o-1 o-2",
        "tags": "new",
        "body": "hello",
    }
    assert "bodyBase64" not in value


def test_a_body_that_is_no_text_goes_as_base64() -> None:
    value = message_json(received(b"\xff\x00"))
    assert base64.b64decode(value["bodyBase64"]) == b"\xff\x00"
    assert "body" not in value
    assert (value["key"], value["tags"]) == (None, None)


def test_a_body_that_cannot_be_decompressed_goes_as_it_is_stored_and_says_why() -> None:
    value = message_json(received(b"not zlib", sys_flag=0x301))
    assert base64.b64decode(value["bodyBase64"]) == b"not zlib"
    assert "zlib" in value["bodyError"]


def test_the_json_of_a_message_is_one_line_whatever_the_body_holds() -> None:
    line = json.dumps(message_json(received("a\nb\u2028c\x1b".encode())))
    assert "\n" not in line


@pytest.mark.parametrize("time_ms", [None, 0, -1])
def test_no_time_is_a_dash(time_ms: int | None) -> None:
    assert format_time(time_ms) == "-"


def test_a_time_is_shown_to_the_millisecond() -> None:
    assert format_time(1_700_000_000_042).endswith(".042")
    assert format_time(2**62) == str(2**62)  # beyond any calendar


def test_a_table_puts_figures_to_the_right(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_table(("NAME", "COUNT"), [("a", 5), ("long name\x1b", 1234567)])
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert lines == [
        "NAME               COUNT",
        "a                      5",
        "long name\\x1b  1,234,567",
    ]


@pytest.mark.parametrize(
    ("text", "padded"),
    [("new", "new   "), ("日本", "日本  "), ("e\u0301", "e\u0301     "), ("long one", "long one")],
)
def test_padding_counts_cells_of_the_terminal(text: str, padded: str) -> None:
    assert pad(text, 6) == padded


@pytest.mark.parametrize(
    ("text", "shown"),
    [("hello", "hello"), ("hello!", "hell…"), ("日本", "日本"), ("日本語", "日本…")],
)
def test_a_cut_counts_cells_of_the_terminal(text: str, shown: str) -> None:
    assert cut(text, 5) == shown


def test_a_cut_may_fall_into_a_wide_character() -> None:
    assert cut("日本語", 4) == "日 …"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues"), (1200, "1,200 queues")]
)
def test_what_is_counted_is_one_or_many(count: int, text: str) -> None:
    assert format_count(count, "queue") == text


def test_what_a_broker_says_as_text_has_its_type() -> None:
    said = {"a": "12", "b": "-1", "c": "0.5", "d": "1.0 2.0 0.5", "e": "true", "f": "V5_3_3"}
    assert convert_facts(said | {"hours": "04", "empty": ""}) == {
        "a": 12,
        "b": -1,
        "c": 0.5,
        "d": [1.0, 2.0, 0.5],
        "e": True,
        "f": "V5_3_3",
        "hours": "04",
        "empty": "",
    }


HOSTILE = "name\x1b]0;x\x07\x9b31m\u202egnp\r\n"


def test_a_name_from_elsewhere_cannot_command_the_terminal(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    write_line(f"group {HOSTILE}")
    write_note(f"no group {HOSTILE.strip()}")
    out, err = capsysbinary.readouterr()
    assert out.decode() == "group name\\x1b]0;x\\x07\\x9b31m\\u202egnp\\r\\n\n"
    assert err.decode() == "no group name\\x1b]0;x\\x07\\x9b31m\\u202egnp\n"


def test_commands_print_text_by_these_functions_alone() -> None:
    commands = Path(output.__file__).parent
    directly = re.compile(r"(?<![\w.])(?<!def )(?:print|click\.echo)\(")
    found = {
        str(path.relative_to(commands))
        for path in commands.rglob("*.py")
        if directly.search(path.read_text())
    }
    # A shell's own script, and the function itself.
    assert found == {"shell/completion.py", "output.py"}
