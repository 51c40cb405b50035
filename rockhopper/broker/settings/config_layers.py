"""The sources of settings, and all errors in them.

A layer is broker.conf, the environment or the command line. It knows the place of each of its keys,
so that an error can name it: ``broker.conf:12``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rockhopper.broker.settings.auth_config import HIDDEN, SECRET_KEYS
from rockhopper.broker.settings.setting_fields import SettingError, SettingErrors
from rockhopper.broker.settings.tls_config import SECRETS, TLS_SPELLINGS
from rockhopper.protocol.bodies.properties_text import iterate_numbered_properties

_Built = TypeVar("_Built")


@dataclass
class Layer:
    """Texts and places by key, and unreadable lines."""

    texts: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    faults: list[SettingError] = field(default_factory=list)
    repeated: list[SettingError] = field(default_factory=list)
    """Entries without effect, because their key is repeated later."""

    def set(self, key: str, text: str, place: str) -> None:
        """Add a setting; the last one with a key counts."""
        if key in self.texts:
            is_secret = TLS_SPELLINGS.get(key, key) in (*SECRETS, *SECRET_KEYS)
            value = HIDDEN if is_secret else self.texts[key]
            why = f"it is ignored, because {key} is set again at {place}: remove one of them"
            self.repeated.append(SettingError(key, value, why).set_place(self.places[key]))
        self.texts[key] = text
        self.places[key] = place


def file_layer(path: Path) -> Layer:
    """Read a properties file. Raises OSError."""
    layer = Layer()
    for each in iterate_numbered_properties(path.read_bytes()):
        place = f"{path}:{each.line}"
        if each.fault is not None:
            layer.faults.append(
                SettingError(each.key, each.value[:80], each.fault).set_place(place)
            )
        else:
            layer.set(each.key, each.value, place)
    return layer


def place_of(key: str, layers: Iterable[Layer], spellings: Mapping[str, str]) -> str | None:
    """Return where *key* got its value; *spellings* maps other spellings to ours."""
    others = [other for other, ours in spellings.items() if ours == key]
    place = None
    for layer in layers:
        for spelt in (*others, key):
            place = layer.places.get(spelt, place)
    return place


class Mistakes:
    """All errors in settings, found by parsing again without each invalid setting."""

    def __init__(self, found: Iterable[SettingError] = ()) -> None:
        self.found = list(found)
        self._removed: set[str] = set()

    def attempt(
        self, step: Callable[[dict[str, str]], _Built], texts: Mapping[str, str]
    ) -> _Built | None:
        """Return ``step(texts)``, repeated without the key of each error; None if that fails.

        An error that arises only because a key was removed does not count; such an error is about
        this key, or names it.
        """
        left = {key: text for key, text in texts.items() if key not in self._removed}
        while True:
            try:
                return step(left)
            except SettingError as error:
                if not self._follows(error):
                    self.found.append(error)
                if error.key not in left:
                    return None
                del left[error.key]
                self._removed.add(error.key)

    def add_errors(self, errors: Iterable[SettingError]) -> None:
        """Add errors found elsewhere, except those that follow from a removed key."""
        self.found += [each for each in errors if not self._follows(each)]

    def _follows(self, error: SettingError) -> bool:
        words = {error.key, *re.findall(r"[\w.]+", error.allowed)}
        return not words.isdisjoint(self._removed)

    def raise_all(
        self, place: Callable[[str], str | None] = lambda key: None, warnings: Sequence[str] = ()
    ) -> None:
        """Raise the errors found, each with its place; return if there are none."""
        placed = [each if each.place else each.set_place(place(each.key)) for each in self.found]
        placed.sort(key=_line)
        if placed:
            error = placed[0] if len(placed) == 1 else SettingErrors(placed)
            error.warnings = warnings
            raise error


def _line(error: SettingError) -> tuple[bool, int]:
    """Sort errors of the file first, in its order."""
    _, separator, line = (error.place or "").rpartition(":")
    is_line = bool(separator) and line.isdecimal()
    return not is_line, int(line) if is_line else 0
