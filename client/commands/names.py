"""Topics and groups as the command line takes them: what cannot be a name is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rockhopper.protocol.names import group_error, topic_error


class _NameType(click.ParamType[Any]):
    def __init__(self, name: str, mistake: Callable[[str], str | None]) -> None:
        self.name = name
        self._mistake = mistake

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or end the program with exit code 2."""
        if reason := self._mistake(value):
            raise click.UsageError(reason, ctx)
        return str(value)


TOPIC = _NameType("topic", topic_error)
GROUP = _NameType("group", group_error)
