"""Read the options of a source: Spark passes strings, with names in lower case.

Every error is a PipelineError that spells the option as its documentation does.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC

from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.times import parse_time_ms

NOT_SERVED = ("accessKey", "secretKey", "securityToken")
"""Options of other connectors that need features which the client lacks."""
_NAMED_MAX = 3
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"([0-9]+)\s*([bkmgt]?)(?:i?b)?")
_DURATION = re.compile(r"([0-9]+)\s*([a-z]*)")
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAMED_ELSEWHERE = {
    "kafka.bootstrap.servers": "nameServer",
    "bootstrap.servers": "nameServer",
    "kafka.group.id": "groupId",
    "paths": "path",
}


class Options:
    """The options of one source; lookups use the documented names."""

    def __init__(self, source: str, given: Mapping[str, str], known: Iterable[str]) -> None:
        """*source* is the name of the format; *known* are the names of its options.

        Raises:
            PipelineError: an option is unknown.
        """
        self.source = source
        self._values = {name.lower(): str(value) for name, value in given.items()}
        spelled = {name.lower(): name for name in known}
        for name in sorted(self._values):
            if name not in spelled:
                meant = _NAMED_ELSEWHERE.get(name, name)
                raise PipelineError(
                    f"{source} has no option {name!r}"
                    f"{suggest_nearest(meant, spelled.values())}: leave it out or correct it"
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def refuse_not_served(self) -> None:
        """Refuse options in NOT_SERVED, unless they disable the feature. Raises PipelineError."""
        for name in NOT_SERVED:
            if self.text(name).lower() not in ("", "false"):
                raise PipelineError(
                    f"{self.source} cannot use the option {name!r}: the client has no access keys "
                    "yet; leave it out, and protect the network between Spark and the brokers"
                )

    def text(self, name: str, default: str = "") -> str:
        """Return the option without surrounding spaces."""
        return self._values.get(name.lower(), default).strip()

    def required(self, name: str, meaning: str) -> str:
        """Return a required option; *meaning* describes the value to set. Raises PipelineError."""
        value = self.text(name)
        if not value:
            raise PipelineError(f"{self.source} needs the option {name!r}: {meaning}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return a comma-separated list."""
        return tuple(part for part in (p.strip() for p in self.text(name).split(",")) if part)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of *choices*; the default is the first one. Raises PipelineError."""
        value = self.text(name, choices[0]).lower()
        if value not in choices:
            raise PipelineError(
                f"the option {name} is {value!r}{suggest_nearest(value, choices)}: "
                f"set it to one of {', '.join(choices)}"
            )
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean. Raises PipelineError."""
        value = self.text(name)
        return read_boolean(name, value) if value else default

    def integer(self, name: str, default: int | None = None, minimum: int = 0) -> int | None:
        """Return an integer of at least *minimum*. Raises PipelineError."""
        value = self.text(name)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise PipelineError(
                f"the option {name} is {value!r}: set it to a whole number of at least {minimum}"
            )
        return number

    def size_bytes(self, name: str, default: int | None, minimum: int = 1) -> int | None:
        """Return a number of bytes; the suffixes k, m, g and t mean KiB and so on.

        Raises PipelineError.
        """
        value = self.text(name).lower()
        if not value:
            return default
        match = _SIZE.fullmatch(value)
        size = int(match[1]) * _UNITS[match[2]] if match else 0
        if size < minimum:
            raise PipelineError(
                f"the option {name} is {value!r}: set it to a size of at least {minimum} bytes, "
                "such as 64m"
            )
        return size

    def duration_ms(self, name: str, default: int) -> int:
        """Return a duration in ms: a number of ms, or one with the unit ms, s, m, min, h or d."""
        value = self.text(name).lower()
        if not value:
            return default
        match = _DURATION.fullmatch(value)
        if match is None or match[2] not in _UNITS_MS:
            raise PipelineError(
                f"the option {name} is {value!r}: set it to a time such as 500ms, 30s, 15m or 1h"
            )
        return int(match[1]) * _UNITS_MS[match[2]]

    def time_ms(self, name: str) -> int | None:
        """Return a time in ms since the epoch; the option is such a number, or ISO 8601.

        The default time zone is UTC. Raises PipelineError.
        """
        value = self.text(name)
        if not value:
            return None
        if value.startswith("-") and value[1:].isdecimal():
            return int(value)
        try:
            return parse_time_ms(value, UTC)
        except ValueError as error:
            raise PipelineError(f"the option {name}: {error}") from None


def read_boolean(name: str, value: str) -> bool:
    """Parse the boolean *value* of the option *name*. Raises PipelineError."""
    lowered = value.lower()
    if lowered not in _TRUE | _FALSE:
        raise PipelineError(f"the option {name} is {value!r}: set it to true or false")
    return lowered in _TRUE


def suggest_nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for an error message; empty if no name is similar."""
    spelled = {word.lower(): word for word in known}
    found = difflib.get_close_matches(name.lower(), spelled, 1, 0.6)
    return f" (did you mean {spelled[found[0]]!r}?)" if found else ""


def suggest_near_or_some(name: str, known: Sequence[str]) -> str:
    """Like ``nearest``, with up to three names; if none is similar, list a few known names."""
    near = difflib.get_close_matches(name, known, _NAMED_MAX, 0.6)
    if near:
        return f" (did you mean {' or '.join(map(repr, near))}?)"
    if not known:
        return ""
    more = len(known) - _NAMED_MAX
    rest = f" and {more:,} more" if more > 0 else ""
    return f" (there is {', '.join(map(repr, known[:_NAMED_MAX]))}{rest})"
