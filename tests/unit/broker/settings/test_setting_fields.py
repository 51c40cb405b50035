"""Settings: texts become values by the type of their default, and every other text is refused."""

# ruff: noqa: RUF009  (setting() makes fields; it is no shared mutable default)

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.settings.setting_fields import (
    SettingError,
    check_fields,
    format_fields,
    format_value,
    parse_bool,
    parse_fields,
    setting,
)


class Choice(Enum):
    ONE = "one"
    TWO = "Two"


@dataclass(frozen=True, kw_only=True)
class Config:
    flag: bool = setting("flag", False)
    number: int = setting("number", 5, least=1, most=10)
    at_least: int = setting("atLeast", 5, least=1)
    at_most: int = setting("atMost", 5, most=10)
    choice: Choice = setting("choice", Choice.ONE)
    numbers: tuple[int, ...] = setting("numbers", (1, 2), separator=",", element=int)
    path: Path = setting("path", Path("a"))
    other: Path | None = setting("other", None)
    text: str = setting("text", "x")
    no_setting: int = 7


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("flag", "YES", "flag", True),
        ("flag", " off ", "flag", False),
        ("number", " 7 ", "number", 7),
        ("number", "-7", "number", -7),
        ("choice", "two", "choice", Choice.TWO),
        ("numbers", "3, 4,,", "numbers", (3, 4)),
        ("numbers", "", "numbers", ()),
        ("path", "/b", "path", Path("/b")),
        ("path", "~/b", "path", Path.home() / "b"),
        ("other", "", "other", None),
        ("other", "/c", "other", Path("/c")),
        ("text", "", "text", ""),
    ],
)
def test_a_text_becomes_a_value(key: str, text: str, field: str, value: object) -> None:
    assert parse_fields(Config, {key: text, "unknown": "1"}) == {field: value}


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("flag", "maybe", "expected true or false"),
        ("flag", "", "expected true or false"),
        ("number", "1.5", "expected a whole number"),
        ("choice", "three", "expected one of one, Two"),
        ("numbers", "1,x", "invalid literal"),
        ("path", "", "expected a path"),
    ],
)
def test_another_text_is_refused_with_what_is_allowed(key: str, text: str, allowed: str) -> None:
    with pytest.raises(SettingError, match=re.escape(f"setting {key}={text}: ")) as error:
        parse_fields(Config, {key: text})
    assert allowed in error.value.allowed
    assert (error.value.key, error.value.value) == (key, text)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("number", 0, "from 1 to 10"),
        ("number", 11, "from 1 to 10"),
        ("at_least", 0, "at least 1"),
        ("at_most", 11, "at most 10"),
    ],
)
def test_a_number_out_of_range_is_refused(field: str, value: int, allowed: str) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(SettingError, match=allowed):
        check_fields(Config(**values))


@pytest.mark.parametrize("number", [1, 10])
def test_the_ends_of_a_range_are_in_it(number: int) -> None:
    check_fields(Config(number=number, at_least=1 << 40, at_most=-5))


def test_values_are_written_as_rocketmq_writes_them() -> None:
    assert format_fields(Config(flag=True, choice=Choice.TWO)) == {
        "flag": "true",
        "number": "5",
        "atLeast": "5",
        "atMost": "5",
        "choice": "Two",
        "numbers": "1,2",
        "path": "a",
        "other": "",
        "text": "x",
    }
    assert format_value((True, None, "a")) == "true;;a"


def test_what_is_written_is_read_again() -> None:
    config = Config(flag=True, choice=Choice.TWO, numbers=(9,), other=Path("/z"))
    assert Config(**parse_fields(Config, format_fields(config))) == config


@pytest.mark.parametrize("text", ["True", "1", "on", "yes"])
def test_truth_has_several_words(text: str) -> None:
    assert parse_bool("k", text)
