"""Makes ``docs/settings.md`` of the configuration's classes: ``make pages``.

What a setting does stands below its field, as a string; what follows ``Cost:`` in it is set apart,
and ``none`` where nothing does. Key, default, limits and live or not are those that the broker goes
by, and the unit is the end of the field's name.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import Field
from enum import Enum
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rockhopper.broker.settings.auth_config import AuthConfig
from rockhopper.broker.settings.broker_config import BrokerConfig, NameServiceConfig, StoreConfig
from rockhopper.broker.settings.classic_config import ClassicConfig
from rockhopper.broker.settings.config_file import is_live
from rockhopper.broker.settings.following_config import FollowingConfig
from rockhopper.broker.settings.live_settings import (
    LivePopSettings,
    LivePullSettings,
    LiveSettings,
    LiveStoreSettings,
    LiveTransactionSettings,
)
from rockhopper.broker.settings.replica_config import ReplicaConfig
from rockhopper.broker.settings.rocketmq_keys import WITHOUT_EFFECT
from rockhopper.broker.settings.setting_fields import Setting, format_value, settings_of, unit_of
from rockhopper.broker.settings.tls_config import TlsConfig

PAGE = Path("docs/settings.md")
MARKER = "<!-- Made by `make pages`: do not edit below. -->\n"
GROUPS: dict[str, tuple[type, ...]] = {
    "The broker": (
        BrokerConfig,
        LiveSettings,
        LivePullSettings,
        LivePopSettings,
        LiveTransactionSettings,
    ),
    "The store": (StoreConfig, LiveStoreSettings),
    "The name server": (NameServiceConfig,),
    "Users and permissions": (AuthConfig,),
    "TLS": (TlsConfig,),
    "A replica of a set": (ReplicaConfig,),
    "A master with RocketMQ's slaves": (ClassicConfig,),
    "A broker that follows a master": (FollowingConfig,),
}
_LARGER = {
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
    "bytes/s": ((1 << 20, "MiB/s"),),
    "ms": ((3_600_000, "h"), (60_000, "min"), (1000, "s")),
    "s": ((86_400, "days"), (3600, "h")),
}
_COST = "Cost: "


class Row(NamedTuple):
    """One setting, as the page shows it."""

    key: str
    default: str
    in_words: str
    allowed: str
    is_live: bool
    text: str
    cost: str


def field_texts(config: type) -> dict[str, str]:
    """What stands below each field of *config*, in one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field.target.id] = " ".join(text.split())
    return texts


def rows_of(configs: Iterable[type]) -> Iterator[Row]:
    """The settings of *configs*, in the order in which they refer to each other."""
    for config in configs:
        texts = field_texts(config)
        for field, known in settings_of(config):
            text, _, cost = texts[field.name].replace("``", "`").partition(_COST)
            default = format_value(field.default, known.separator)
            allowed = _allowed(field, known)
            in_words = _in_words(field.default, unit_of(field.name))
            yield Row(known.key, default, in_words, allowed, is_live(known.key), text.strip(), cost)


def _allowed(field: Field[Any], known: Setting) -> str:
    default = field.default
    if isinstance(default, bool):
        return "true, false"
    if isinstance(default, Enum):
        return ", ".join(str(each.value) for each in type(default))
    if isinstance(default, tuple):
        return f"a list, `{known.separator}` between"
    if default is None or isinstance(default, Path):
        return "a path"
    if not isinstance(default, int):
        return "text"
    unit = unit_of(field.name)
    span = (
        f"{known.least:,} to {known.most:,}" if known.most is not None else f"from {known.least:,}"
    )
    return f"{unit}: {span}" if unit else span


def _in_words(number: object, unit: str) -> str:
    """*number* again, in a larger unit where it is a whole one."""
    if not isinstance(number, int) or number < 1024:
        return ""
    for size, name in _LARGER.get(unit, ()):
        if number % size == 0:
            return f" ({number // size} {name})"
    return ""


def generated() -> str:
    """What stands below the marker."""
    groups = {title: tuple(rows_of(configs)) for title, configs in GROUPS.items()}
    keys = sorted((row.key for rows in groups.values() for row in rows), key=str.lower)
    lines = ["", "## All of them", "", ", ".join(f"[{key}](#{key})" for key in keys)]
    for title, rows in groups.items():
        lines += ["", f"## {title}", ""]
        lines += ["| setting | default; unit, allowed | live | what it does |", "|---|---|---|---|"]
        lines += [_line(row) for row in rows]
    lines += ["", "## RocketMQ's keys without effect", "", "| about | keys |", "|---|---|"]
    for meaning, found in groupby(WITHOUT_EFFECT.items(), key=itemgetter(1)):
        lines.append(f"| {meaning} | {', '.join(f'`{key}`' for key, _ in found)} |")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    default = f"`{_cell(row.default)}`" if row.default else "empty"
    cost = f"<br>**Cost:** {_cell(row.cost or 'none')}"
    return (
        f'| <a id="{row.key}"></a>`{row.key}` | {default}{row.in_words}<br>{row.allowed} '
        f"| {'live' if row.is_live else ''} | {_cell(row.text)}{cost} |"
    )


def _cell(text: str) -> str:
    """*text* for a cell, where what is in backticks stands as it is."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def page(current: str) -> str:
    """*current* with what is generated made anew."""
    return current.partition(MARKER)[0] + MARKER + generated()


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
