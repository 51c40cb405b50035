"""Settings as dataclass fields: their RocketMQ keys, parsing and checks.

A part of the configuration is a class made by ``settings_dataclass``. Its settings are fields
made by ``setting``, with the key in broker.conf, the environment and flags, and the valid values.
``parse_fields`` turns texts into field values, ``check_fields`` rejects values out of range,
``format_fields`` writes them as RocketMQ writes its properties.

    SettingError        an invalid value: names the setting, the value and what is allowed
    SettingErrors       several of them
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast, dataclass_transform

from rockhopper.paths import expand_home

Value = TypeVar("Value")
Config = TypeVar("Config")


class SettingError(ValueError):
    """A setting has an invalid value; the message is the line to show to the operator."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"setting {key}={format_value(value)}: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed
        self.place: str | None = None
        self.warnings: Sequence[str] = ()
        """Further warnings about the same settings."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.place is None else f"{self.place}: {text}"

    def set_place(self, place: str | None) -> Self:
        """Set the place where the value is written; return the error itself."""
        self.place = place
        return self


class SettingErrors(SettingError):
    """Several errors, one line for each. The key is that of the first."""

    def __init__(self, errors: Sequence[SettingError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.allowed)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class Setting(NamedTuple):
    """The properties of a field besides its type and default."""

    key: str
    least: int | None = None
    most: int | None = None
    separator: str = ";"
    element: Callable[[str], Any] = str


def setting(
    key: str,
    default: Value,
    *,
    least: int | None = None,
    most: int | None = None,
    separator: str = ";",
    element: Callable[[str], object] = str,
) -> Value:
    """Declare a dataclass field for RocketMQ's *key*.

    *separator* and *element* define how the text of a tuple is parsed.
    """
    metadata = {"setting": Setting(key, least, most, separator, element)}
    field: Value = dataclasses.field(default=default, metadata=metadata)
    return field


@dataclass_transform(kw_only_default=True)
def settings_dataclass(
    *, frozen: bool, repr: bool = True
) -> Callable[[type[Config]], type[Config]]:
    """Return a decorator like ``dataclass(kw_only=True)``.

    dataclass compiles the text of each method for each class: with 200 settings, a twentieth of the
    broker's start. These methods read the fields instead.
    """
    methods: dict[str, Any] = {"__init__": _fill, "__eq__": _equals, "__hash__": None}
    if frozen:
        methods |= {"__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
    if repr:
        methods["__repr__"] = _show

    def decorate(part: type[Config]) -> type[Config]:
        for name, method in methods.items():
            setattr(part, name, method)
        return dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(part)

    return decorate


def _fill(self: Any, **values: Any) -> None:
    for field in dataclasses.fields(self):
        if field.name in values:
            value = values.pop(field.name)
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            value = field.default
        object.__setattr__(self, field.name, value)
    if values:
        raise TypeError(f"{type(self).__qualname__} has no setting {', '.join(values)}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _equals(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self))
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change the setting {name!r}")


def settings_of(config: object) -> Sequence[tuple[dataclasses.Field[Any], Setting]]:
    """Return the fields of a configuration (class or instance) that are settings, in order."""
    return _settings_of_class(config if isinstance(config, type) else type(config))


@cache
def _settings_of_class(config: type) -> Sequence[tuple[dataclasses.Field[Any], Setting]]:
    fields = dataclasses.fields(cast(Any, config))
    return tuple((each, each.metadata["setting"]) for each in fields if "setting" in each.metadata)


def parse_fields(config: type, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return field values of *config* for its keys in *texts*. Raises SettingError."""
    values: dict[str, Any] = {}
    for field, known in settings_of(config):
        if known.key in texts:
            values[field.name] = _parse(known, field.default, texts[known.key].strip())
    return values


def check_fields(config: object) -> None:
    """Raise SettingError for the first field whose value is out of range."""
    for field, known in settings_of(config):
        value = getattr(config, field.name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if known.least is not None and value < known.least:
            raise SettingError(known.key, value, _range(known))
        if known.most is not None and value > known.most:
            raise SettingError(known.key, value, _range(known))


def format_fields(config: object) -> dict[str, str]:
    """Return every setting of *config* as RocketMQ's properties show it."""
    return {
        known.key: format_value(getattr(config, field.name), known.separator)
        for field, known in settings_of(config)
    }


def format_value(value: object, separator: str = ";") -> str:
    """Return a value as it is written in a properties file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return separator.join(map(format_value, value))
    return str(value)


# By the words of a field's name; the unit comes last.
_UNITS = {
    "per": "bytes/s",
    "bytes": "bytes",
    "hours": "hours",
    "ms": "ms",
    "percent": "%",
    "ratio": "%",
}


def unit_of(name: str) -> str:
    """Return the unit of a field's number; empty for a count, or if it is not a number."""
    words = name.split("_")
    unit = next((unit for word, unit in _UNITS.items() if word in words), "")
    return unit or ("s" if words[-1] == "s" else "")


def _range(known: Setting) -> str:
    if known.least is not None and known.most is not None:
        return f"expected a whole number from {known.least} to {known.most}"
    if known.least is not None:
        return f"expected a whole number of at least {known.least}"
    return f"expected a whole number of at most {known.most}"


def _parse(known: Setting, default: object, text: str) -> object:
    """Return *text* as the type of the field's default."""
    key = known.key
    if isinstance(default, bool):
        return parse_bool(key, text)
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            raise SettingError(key, text, "expected a whole number") from None
    if isinstance(default, Enum):
        return _parse_choice(key, type(default), text)
    if isinstance(default, tuple):
        return _parse_list(known, text)
    if default is None:
        return _parse_path(key, text) if text else None
    if isinstance(default, Path):
        if not text:
            raise SettingError(key, text, "expected a path")
        return _parse_path(key, text)
    return text


def _parse_path(key: str, text: str) -> Path:
    try:
        return expand_home(text)
    except OSError as error:
        raise SettingError(key, text, f"{error.strerror}: give the absolute path") from None


def _parse_list(known: Setting, text: str) -> tuple[object, ...]:
    try:
        return tuple(
            known.element(part.strip()) for part in text.split(known.separator) if part.strip()
        )
    except ValueError as error:
        raise SettingError(known.key, text, str(error)) from None


def parse_bool(key: str, text: str) -> bool:
    """Return *text* as a boolean. Raises SettingError."""
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise SettingError(key, text, "expected true or false")


def _parse_choice(key: str, choices: type[Enum], text: str) -> Enum:
    for choice in choices:
        if str(choice.value).lower() == text.lower():
            return choice
    allowed = ", ".join(str(choice.value) for choice in choices)
    raise SettingError(key, text, f"expected one of {allowed}")
