"""Renders pages from templates, so that the content of messages and names stays plain text.

Jinja escapes HTML markup. This module also makes invisible characters visible: control characters,
characters that change the text direction, and zero-width ones. So no text on a page can pose as
another.
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
from rockhopper.protocol.calendar_times import clamp_to_calendar

_HERE = Path(__file__).parent
# Controls except tab and line feed, direction marks, zero-width characters, separators, surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def visible(value: object) -> object:
    """Replace the invisible characters of a text by their numbers.

    Return other values unchanged.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", value)


@lru_cache
def static_files() -> dict[str, tuple[bytes, str]]:
    """Return the bytes and type of each static file by name."""
    files = {path.name: path.read_bytes() for path in (_HERE / "static").iterdir()}
    files["console.css"] = CSS.encode() + files["console.css"]
    return {
        name: (body, _KINDS[Path(name).suffix])
        for name, body in files.items()
        if Path(name).suffix in _KINDS
    }


@lru_cache
def static_mark() -> str:
    """Return a hash of all static files."""
    bodies = b"".join(body for body, _ in static_files().values())
    return sha256(bodies).hexdigest()[:12]


def link(path: str, **query: Any) -> str:
    """Return a link to a page relative to the first one, with a query; None and blank are omitted.

    Pages set the first page as their base, so links also work behind a reverse proxy with its own
    path.
    """
    pairs = {name: value for name, value in query.items() if value is not None and value != ""}
    encoded = urlencode(pairs, errors="replace")
    return f"{path or './'}?{encoded}" if encoded else path or "./"


def root_of(path: str) -> str:
    """Return the first page's address relative to *path*: ``../`` for ``group/reset``."""
    return "../" * path.count("/") or "./"


def relink(query: Mapping[str, str], path: str, **changes: Any) -> str:
    """Return a ``link`` with an existing query and changes."""
    return link(path, **{**query, **changes})


def count(value: float | None, digits: int = 0) -> str:
    """Format a number with , between thousands."""
    return "–" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Format a rate per second."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Format a size in bytes with its unit."""
    if value is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def format_time(time_ms: int | None) -> Markup | str:
    """Format a point in time by this host's clock."""
    if not time_ms or time_ms < 0:
        return "–"
    if time_ms != clamp_to_calendar(time_ms):
        return f"{time_ms} ms"
    at = datetime.fromtimestamp(time_ms / 1000).astimezone()
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{} ms">{}</time>').format(
        at.isoformat(timespec="milliseconds"), time_ms, text
    )


def duration(seconds: float | None) -> str:
    """Format a duration in its two largest units."""
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
    """Format how long ago a point in time is."""
    if not time_ms:
        return "–"
    seconds = time.time() - time_ms / 1000
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


@lru_cache
def environment() -> Environment:
    """Return the template environment."""
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        count=count, rate=rate, size=size, when=format_time, duration=duration, ago=ago
    )
    found.globals.update(link=link, relink=relink, home="./", mark=static_mark())
    return found


def render(template: str, values: Mapping[str, Any]) -> bytes:
    """Render a page; takes some milliseconds, and is thread-safe."""
    return environment().get_template(template).render(values).encode("utf-8", "replace")


def encode_json(document: Any) -> bytes:
    """Encode an answer for scripts."""
    return json.dumps(document).encode()
