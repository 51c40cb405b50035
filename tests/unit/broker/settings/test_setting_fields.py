"""Settings: texts become values by the type of their default, and every other text is refused."""

import dataclasses
import re
from dataclasses import field
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
    settings_dataclass,
)


class Choice(Enum):
    ONE = "one"
    TWO = "Two"


@settings_dataclass(frozen=True)
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


@settings_dataclass(frozen=False)
class Live:
    number: int = setting("number", 5)
    numbers: list[int] = field(default_factory=list)


@settings_dataclass(frozen=True, repr=False)
class Secret:
    text: str = setting("text", "secret")


def test_settings_are_compared_shown_and_replaced_like_other_dataclasses() -> None:
    config = Config(number=7)
    assert (config.number, config.text) == (7, "x")
    assert config == Config(number=7) != Config()
    assert config != Live(number=7)  # type: ignore[comparison-overlap]
    assert hash(config) == hash(Config(number=7))
    assert repr(Live(number=1)) == "Live(number=1, numbers=[])"
    assert "secret" not in repr(Secret())
    assert dataclasses.replace(config, text="y") == Config(number=7, text="y")
    assert Live().numbers is not Live().numbers


def test_frozen_settings_do_not_change_and_others_do() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
        config.number = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
        del config.number
    live = Live()
    live.number = 3
    assert live == Live(number=3)
    with pytest.raises(TypeError, match="unhashable"):
        hash(live)


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="Config has no setting nunber"):
        Config(nunber=3)  # type: ignore[call-arg]
