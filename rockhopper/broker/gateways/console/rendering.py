"""Rendering: pages out of templates, so that whatever a message or a name holds stays text.

Jinja escapes what HTML takes for markup. What remains is made visible here: control characters,
and those that turn the direction of writing or cannot be seen, so that nothing on a page looks like
something that it is not.
"""

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rockhopper.page_style import CSS
from rockhopper.protocol.calendar_times import in_calendar

_HERE = Path(__file__).parent
# Controls but tab and line feed, marks of direction, what has no width, separators, surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def visible(value: object) -> object:
    """A text with its invisible characters shown as their numbers; other values as they are."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", value)


@lru_cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """What pages load beside themselves: bytes and type by name."""
    files = {path.name: path.read_bytes() for path in (_HERE / "static").iterdir()}
    files["console.css"] = CSS.encode() + files["console.css"]
    return {
        name: (body, _KINDS[Path(name).suffix])
        for name, body in files.items()
        if Path(name).suffix in _KINDS
    }


@lru_cache
def static_mark() -> str:
    """Changes whenever one of them does."""
    bodies = b"".join(body for body, _ in static_files().values())
    return sha256(bodies).hexdigest()[:12]


def link(path: str, **query: Any) -> str:
    """A page, relative to the console's first one, with a query; what is None or blank is left out.

    Pages name that as their base, so that links hold behind a reverse proxy with a path of its own.
    """
    pairs = {name: value for name, value in query.items() if value is not None and value != ""}
    encoded = urlencode(pairs, errors="replace")
    return f"{path or './'}?{encoded}" if encoded else path or "./"


def root_of(path: str) -> str:
    """The console's first page, relative to the page at *path*: ``../`` for ``group/reset``."""
    return "../" * path.count("/") or "./"


def relink(query: Mapping[str, str], path: str, **changes: Any) -> str:
    """``link`` with what a query holds already, and changes."""
    return link(path, **{**query, **changes})


def count(value: float | None, digits: int = 0) -> str:
    """A number with , between thousands."""
    return "–" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """A number per second."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes with their unit."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def when(time_ms: int | None) -> Markup | str:
    """A point in time of this host's clock."""
    if not time_ms or time_ms < 0:
        return "–"
    if time_ms != in_calendar(time_ms):
        return f"{time_ms} ms"
    at = datetime.fromtimestamp(time_ms / 1000).astimezone()
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} ms">{}</time>').format(
        at.isoformat(timespec="milliseconds"), time_ms, text
    )


def duration(seconds: float | None) -> str:
    """How long something takes, in the two largest units."""
    if seconds is None:
        return "–"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if not seconds:
        return "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit_s, unit, small_s, small in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit_s:
            whole, rest = divmod(int(seconds), unit_s)
            return (
                f"{whole} {unit} {rest // small_s} {small}"
                if rest // small_s
                else f"{whole} {unit}"
            )
    return f"{seconds:.0f} s"


def ago(time_ms: int | None) -> str:
    """How long ago a point in time is."""
    if not time_ms:
        return "–"
    seconds = time.time() - time_ms / 1000
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


@lru_cache
def environment() -> Environment:
    """The templates."""
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(count=count, rate=rate, size=size, when=when, duration=duration, ago=ago)
    found.globals.update(link=link, relink=relink, home="./", mark=static_mark())
    return found


def render(template: str, values: Mapping[str, Any]) -> bytes:
    """The page. Takes some milliseconds; safe in a thread."""
    return environment().get_template(template).render(values).encode("utf-8", "replace")


def as_json(document: Any) -> bytes:
    """What scripts read."""
    return json.dumps(document).encode()
