"""Logging: JSON for programs, lines for people, the logger's name in both."""

import errno
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from rockhopper.broker.observing import log


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before, was_configured = structlog.get_config(), structlog.is_configured()
    yield
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class WriteByWrite(io.RawIOBase):
    """A pipe that several processes write to, as one of them writes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.writes.append(bytes(data))
        return len(self.writes[-1])


def test_a_program_gets_one_json_object_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    log.configure()
    logger = structlog.get_logger("broker.test")
    logger.info("something happened", topic="orders", text="ü")
    logger.debug("not shown")
    (line,) = errors.getvalue().splitlines()
    event = json.loads(line)
    assert list(event) == ["timestamp", "level", "logger", "event", "topic", "text"]
    assert event["logger"] == "broker.test"
    assert (event["level"], event["topic"], event["text"]) == ("info", "orders", "ü")


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    written = WriteByWrite()
    # As with PYTHONUNBUFFERED.
    errors = io.TextIOWrapper(written, "utf-8", write_through=True)  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stderr", errors)
    log.configure()
    structlog.get_logger("broker.test").info("something happened", text="x" * 3000)
    (line,) = written.writes
    assert line.endswith(b"\n")


def test_an_exception_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    log.configure()
    try:
        raise RuntimeError("a mistake of ours")
    except RuntimeError as error:
        structlog.get_logger("broker.test").error("request failed", exc_info=error)
    (line,) = errors.getvalue().splitlines()
    assert "a mistake of ours" in json.loads(line)["exception"]


def test_a_person_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log.configure("debug")
    structlog.get_logger("broker.test").debug("something happened", topic="orders")
    assert "\x1b[" in terminal.getvalue()
    assert "something happened" in terminal.getvalue()
    assert "broker.test" in terminal.getvalue()


def test_a_tool_says_errors_as_its_own_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    log.configure_tool("rockhopper-broker")
    logger = structlog.get_logger("broker.test")
    logger.warning("not shown")
    logger.error("a file is damaged", path="/x", kept_as=None, size=7)
    logger.error("that is all")
    assert errors.getvalue() == (
        "rockhopper-broker: a file is damaged (path: /x, size: 7)\nrockhopper-broker: that is all\n"
    )


def test_a_line_that_cannot_be_written_or_formatted_raises_nothing_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Unprintable:
        def __repr__(self) -> str:
            raise ValueError("no")

    monkeypatch.setattr(sys, "stderr", Full())
    log.configure()
    before = log.count_dropped()
    logger = structlog.get_logger("broker.test")
    try:
        raise RuntimeError("a mistake")
    except RuntimeError as error:
        logger.error("request failed", exc_info=error)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    logger.warning("something happened", value=Unprintable())
    monkeypatch.setattr(sys, "stderr", None)
    logger.info("something happened")
    assert log.count_dropped() == before + 3
