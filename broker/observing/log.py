"""Logging: one line per event on standard error, for people on a terminal, as JSON elsewhere.

Modules get their logger with ``structlog.get_logger("broker.<part>")``; the name comes out as
``logger``. Until ``configure`` runs (tests, a broker inside another program) structlog's own
defaults apply.
"""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

LEVELS = ("debug", "info", "warning", "error")


class _NamedLogger:
    """Writes finished lines and remembers the name it was asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def msg(self, line: str) -> None:
        # Looked up each time: a test's or a host program's standard error may change.
        # One write: brokers side by side write to the same pipe.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    log = debug = info = warning = error = critical = msg


def _add_name(logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event["logger"] = logger.name
    return event


def _put_common_fields_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {key: event.pop(key) for key in ("timestamp", "level", "logger", "event")}
    return {**first, **event}


def configure_tool(tool: str) -> None:
    """Have errors come as sentences of the program *tool*, and nothing else."""

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
    """Send every logger's lines of *level* and above to standard error.

    *node* stands in each of them, where several processes write to one place.
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
    structlog.configure(
        processors=[
            *([add_node] if node else []),
            _add_name,
            structlog.processors.add_log_level,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *names: _NamedLogger(names[0] if names else "broker"),
        cache_logger_on_first_use=True,
    )
