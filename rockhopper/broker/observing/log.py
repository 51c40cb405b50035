"""Logging: one line per event on standard error, readable on a terminal, JSON elsewhere.

Modules get their logger with ``structlog.get_logger("broker.<part>")``; the name is logged as
``logger``. A line that cannot be formatted or written is dropped and counted: logging never raises
and, in a daemon, never blocks (``log_stream.py``). Repeated events are summarized
(``repeated_lines.py``).

A broker inside another program logs warnings and errors, unless the program has configured
structlog itself.
"""

import atexit
import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from rockhopper.broker.observing.log_stream import LogStream, leave_log_stream, use_log_stream
from rockhopper.broker.observing.repeated_lines import RepeatedLines

LEVELS = ("debug", "info", "warning", "error")

log = structlog.get_logger("broker.log")


class _Lines:
    """The state of this process's log."""

    def __init__(self) -> None:
        self.stream: LogStream | None = None
        self.repeated = RepeatedLines()
        self.unwritable_count = 0


_lines = _Lines()


def count_dropped() -> int:
    """Return how many lines of this process could not be formatted or written."""
    stream = _lines.stream
    return _lines.unwritable_count + (0 if stream is None else stream.dropped_count)


class _NamedLogger:
    """Writes finished lines, and remembers its logger's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def msg(self, line: str) -> None:
        # Looked up each time: a test or a host program may replace standard error. One write:
        # several brokers may write to the same pipe.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    log = debug = info = warning = error = critical = msg


class _TaskLines(logging.Handler):
    """Adds the messages of rockhopper/tasks.py, which the client shares, to the broker's log."""

    def emit(self, record: logging.LogRecord) -> None:
        line = structlog.get_logger("broker.tasks")
        line.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def _add_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _put_common_fields_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {key: event.pop(key) for key in ("timestamp", "level", "logger", "event")}
    return {**first, **event}


def _make_safe_logger(level: str) -> Any:
    """Return a class of loggers whose methods never raise."""
    base: Any = structlog.make_filtering_bound_logger(getattr(logging, level.upper()))

    class SafeLogger(base):  # type: ignore[misc]
        def _proxy_to_logger(self, method: str, event: str | None = None, **fields: Any) -> Any:
            try:
                return super()._proxy_to_logger(method, event, **fields)
            except Exception:
                _lines.unwritable_count += 1

    return SafeLogger


def configure_tool(tool: str) -> None:
    """Log errors only, as sentences of the program *tool*."""

    def as_sentence(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
        sentence = f"{tool}: {event.pop('event')}"
        values = (f"{name}: {value}" for name, value in event.items() if value is not None)
        return f"{sentence} ({', '.join(values)})" if event else sentence

    structlog.configure(
        processors=[as_sentence],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=lambda *_: _NamedLogger(tool),
        cache_logger_on_first_use=True,
    )


def configure(level: str = "info", node: str = "") -> None:
    """Log the lines of *level* and above to standard error.

    *node* is added to each of them if several processes write to one place.
    """

    def add_node(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {"node": node, **event}

    if sys.stderr.isatty():
        renderers: list[Any] = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=True, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    else:
        renderers = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _put_common_fields_first,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    tasks = logging.getLogger("rockhopper.tasks")
    tasks.propagate = False
    tasks.handlers = [_TaskLines()]
    structlog.configure(
        processors=[
            _lines.repeated,
            *([add_node] if node else []),
            _add_name,
            structlog.processors.add_log_level,
            *renderers,
        ],
        wrapper_class=_make_safe_logger(level),
        logger_factory=lambda *names: _NamedLogger(names[0] if names else "broker"),
        cache_logger_on_first_use=True,
    )


def use_stream() -> None:
    """Write the log through a thread until the process ends; call it before opening files.

    For a daemon. A program that has replaced ``sys.stderr`` keeps its own.
    """
    if _lines.stream is None and sys.stderr is sys.__stderr__:
        _lines.stream = use_log_stream()
        atexit.register(_close_stream)


def _close_stream() -> None:
    _lines.repeated.summarize(all_of_them=True)
    stream, _lines.stream = _lines.stream, None
    if stream is not None:
        leave_log_stream(stream)
