"""Results of jobs: for people as lines, for programs as JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import pytest

from rockhopper.pipeline.jobs.results import JobResult, are, as_document, format_count, format_size


class Colour(Enum):
    RED = "red"


@dataclass
class Counted(JobResult):
    message_count: int = 0
    away: list[str] = field(default_factory=list)
    _hidden: int = 0

    def lines(self) -> Iterable[str]:
        yield f"{self.message_count} messages"


def test_a_result_is_good_while_nobody_is_away() -> None:
    assert Counted(3).is_good
    assert str(Counted(3)) == "3 messages"


@pytest.mark.parametrize(
    ("away", "said"),
    [
        (["a"], "the broker a is away, so what is there is missing here: start it and run"),
        (["a", "b"], "the brokers a, b are away, so what is there is missing here: start them"),
    ],
)
def test_who_is_away_is_named_with_the_remedy(away: list[str], said: str) -> None:
    result = Counted(3, away)
    assert not result.is_good
    assert str(result).startswith(f"3 messages\n{said}")
    assert result.warning.endswith(" ".join(f"--without {name}" for name in away))


def test_one_broker_is_and_two_are() -> None:
    assert are(["a"]) == "the broker a is"
    assert are(["a", "b"]) == "the brokers a, b are"


def test_a_document_has_the_names_and_the_types_of_json() -> None:
    value = {
        1: Counted(7, ["x"], _hidden=5),
        "when": datetime(2026, 11, 23, tzinfo=UTC),
        "what": (Colour.RED, b"\x01\xff", Path("/tmp/x"), None, 1.5, {"z"}),
    }
    assert as_document(value) == {
        "1": {"messageCount": 7, "away": ["x"]},
        "when": "2026-11-23T00:00:00+00:00",
        "what": ["red", "01ff", "/tmp/x", None, 1.5, ["z"]],
    }


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KB"),
        (1_449_000, "1.4 MB"),
        (2_500_000_000, "2.5 GB"),
        (7 * 10**15, "7000.0 TB"),
    ],
)
def test_a_size_is_as_people_read_it(size: int, text: str) -> None:
    assert format_size(size) == text


def test_one_is_not_many() -> None:
    assert format_count(1, "file") == "1 file"
    assert format_count(2000, "file") == "2,000 files"
    assert format_count(0, "entry", "entries") == "0 entries"
