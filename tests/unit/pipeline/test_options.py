"""Options as Spark hands them over: found in any case, and refused in one sentence by name."""

import re
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import (
    NOT_SERVED,
    Options,
    read_boolean,
    suggest_near_or_some,
    suggest_nearest,
)

KNOWN = ("nameServer", "path", "splitSize", "startingTime", "mode")


def options(**given: str) -> Options:
    return Options("our-source", given, KNOWN)


def test_a_name_counts_in_any_case() -> None:
    found = options(NAMESERVER=" a:1 ")
    assert "nameServer" in found
    assert "path" not in found
    assert found.text("nameServer") == found.required("nameServer", "host:port") == "a:1"
    assert found.text("path", "x") == "x"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nameserver1", "no option 'nameserver1' (did you mean 'nameServer'?)"),
        ("kafka.bootstrap.servers", "(did you mean 'nameServer'?)"),
        ("paths", "(did you mean 'path'?)"),
        ("zzz", "our-source has no option 'zzz': leave it out"),
    ],
)
def test_an_unknown_option_is_named_with_what_is_near(name: str, says: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(says)):
        Options("our-source", {name: "1"}, KNOWN)


@pytest.mark.parametrize("given", [{}, {"path": "  "}])
def test_what_must_be_there_says_what_to_set_it_to(given: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match="needs the option 'path': the store"):
        options(**given).required("path", "the store")


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_the_client_cannot_do_is_refused_and_may_be_declined(name: str) -> None:
    Options("rocketmq", {name: "false"}, NOT_SERVED).refuse_not_served()
    with pytest.raises(PipelineError, match=f"rocketmq cannot use the option '{name}'"):
        Options("rocketmq", {name: "x"}, NOT_SERVED).refuse_not_served()


def test_a_list_is_split_at_commas() -> None:
    assert options(path=" a, b ,,c").names("path") == ("a", "b", "c")
    assert options().names("path") == ()


def test_a_choice_is_one_of_some() -> None:
    assert options().choice("mode", ("fast", "slow")) == "fast"
    assert options(mode="SLOW").choice("mode", ("fast", "slow")) == "slow"
    with pytest.raises(PipelineError, match=r"is 'slov' \(did you mean 'slow'\?\): set it to one"):
        options(mode="slov").choice("mode", ("fast", "slow"))


@pytest.mark.parametrize(
    ("text", "value"), [("", None), ("Yes", True), ("1", True), ("OFF", False), ("no", False)]
)
def test_a_truth_value(text: str, value: bool | None) -> None:
    for default in (True, False):
        expected = default if value is None else value
        assert options(mode=text).boolean("mode", default) is expected


def test_what_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(PipelineError, match="the option mode is 'maybe': set it to true or false"):
        read_boolean("mode", "maybe")


@pytest.mark.parametrize(("text", "value"), [("", 7), ("3", 3), ("12", 12)])
def test_a_whole_number(text: str, value: int) -> None:
    assert options(mode=text).integer("mode", 7, minimum=3) == value


@pytest.mark.parametrize("text", ["2", "-1", "x", "1.5"])
def test_a_number_below_its_least_or_none_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match=f"is '{text}': set it to a whole number of at least 3"):
        options(mode=text).integer("mode", minimum=3)


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 5), ("100", 100), ("64m", 64 << 20), ("2 GiB", 2 << 30), ("1KB", 1024), ("3t", 3 << 40)],
)
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert options(splitSize=text).size_bytes("splitSize", 5) == size


@pytest.mark.parametrize("text", ["0", "-1k", "1x", "m", "1.5g"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match="such as 64m"):
        options(splitSize=text).size_bytes("splitSize", None)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("", 7), ("250", 250), ("500ms", 500), ("30s", 30_000), ("15 m", 900_000), ("2Min", 120_000)],
)
def test_a_time_span_has_a_unit_or_is_milliseconds(text: str, span_ms: int) -> None:
    assert options(startingTime=text).duration_ms("startingTime", 7) == span_ms


@pytest.mark.parametrize("text", ["soon", "-1s", "1.5h", "3 weeks"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(PipelineError, match="such as 500ms, 30s, 15m or 1h"):
        options(startingTime=text).duration_ms("startingTime", 7)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("", None),
        ("1700000000000", 1_700_000_000_000),
        ("-1", -1),
        ("2026-11-20T09:00:00", 1_795_165_200_000),
        ("2026-11-20T10:00:00+01:00", 1_795_165_200_000),
        ("2026-11-20", 1_795_132_800_000),
    ],
)
def test_a_time_is_milliseconds_or_iso(text: str, time_ms: int | None) -> None:
    assert options(startingTime=text).time_ms("startingTime") == time_ms


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(PipelineError, match="or milliseconds since 1970"):
        options(startingTime="yesterday").time_ms("startingTime")


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("order", ["orders", "bills"], " (did you mean 'orders'?)"),
        ("x", ["aaa", "bbb"], " (there is 'aaa', 'bbb')"),
        ("x", ["aaa", "bbb", "ccc", "ddd", "eee"], " (there is 'aaa', 'bbb', 'ccc' and 2 more)"),
        ("x", [], ""),
    ],
)
def test_a_few_that_there_are(name: str, known: list[str], said: str) -> None:
    assert suggest_near_or_some(name, known) == said


def test_nothing_near_is_nothing_said() -> None:
    known: Any = ["alpha"]
    assert suggest_nearest("zzz", known) == ""
    assert suggest_nearest("ALPHA", known) == " (did you mean 'alpha'?)"
