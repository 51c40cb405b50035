"""Filters messages in the client, by their text and their properties."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from rockhopper.client.commands.output import read_body
from rockhopper.protocol.properties import PROPERTY_KEYS

if TYPE_CHECKING:
    from rockhopper.client.received import ReceivedMessage

_Command = TypeVar("_Command", bound=Callable[..., Any])


def wanted_options(command: _Command) -> _Command:
    """Add --grep and --where, as `pattern` and `pairs`."""
    where = click.option(
        "--where",
        "-w",
        "pairs",
        multiple=True,
        metavar="NAME=VALUE",
        help=(
            "Only messages with this property (TAGS and KEYS are properties); repeatable: all "
            "must match."
        ),
    )
    grep = click.option(
        "--grep",
        "pattern",
        metavar="REGEX",
        help='Only messages whose body matches; "(?i)paid" also matches PAID.',
    )
    return grep(where(command))


@dataclass(frozen=True)
class LocalFilter:
    """A filter for messages, applied by the client, not by the broker."""

    pattern: re.Pattern[str] | None = None
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_options(cls, pattern: str | None, pairs: Sequence[str]) -> Self:
        """Return the filter for the options, or end the program with exit code 2."""
        properties = []
        for text in pairs:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise click.UsageError(f"--where {text!r} must look like NAME=VALUE")
            properties.append((name, value))
        try:
            return cls(None if pattern is None else re.compile(pattern), tuple(properties))
        except re.error as error:
            raise click.UsageError(
                f"--grep {pattern!r} is not a regular expression: {error}"
            ) from None

    @property
    def is_choosy(self) -> bool:
        """Whether the filter may reject messages."""
        return self.pattern is not None or bool(self.properties)

    def __call__(self, message: "ReceivedMessage") -> bool:
        """Return whether a message passes the filter."""
        for name, value in self.properties:
            found = message.properties.get(name)
            if found != value and not (name == PROPERTY_KEYS and value in message.keys):
                return False
        if self.pattern is None:
            return True
        body, _ = read_body(message)
        return self.pattern.search(body.decode(errors="replace")) is not None
