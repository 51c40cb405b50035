"""Generates docs/compatibility.md and the table of docs/request-codes.md: ``make compatibility``.

The processor tables define which request codes are served and for whom, unserved.py those that are
not, and protocol/codes.py what Rockhopper's own codes do. The part of the first page above its
marker is written by hand and preserved; so is the text around the table in the second.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from rockhopper.broker.app import FEATURES
from rockhopper.broker.kernel.processors.sends import SendProcessor
from rockhopper.broker.kernel.processors.topics_admin import TopicAdminProcessors
from rockhopper.broker.kernel.processors.unserved import UNSERVED
from rockhopper.broker.name_server.processors import NameServiceProcessors
from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.remoting.dispatcher import Row
from rockhopper.broker.server.remoting.permissions import ADMINISTRATION
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.codes import RequestCode

PAGE = Path("docs/compatibility.md")
MARKER = "<!-- Made by `make compatibility`: do not edit below. -->\n"
OWN_PAGE = Path("docs/request-codes.md")
OWN_MARKERS = ("<!-- Made by `make compatibility`. -->\n", "<!-- By hand from here. -->\n")
FIRST_OWN = 70_001


class _Anything:
    """Stands in for any part of a broker, because the table's keys do not depend on the parts."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self, *_: object, **__: object) -> Any:
        return _Anything()

    def __getitem__(self, _: object) -> Any:
        return _Anything()


class _AnyKernel(_Anything):
    """A stand-in for a kernel: the rows of its processors need no parts."""

    sends = object.__new__(SendProcessor)
    topic_admin = object.__new__(TopicAdminProcessors)


class _AnyBroker(_Anything):
    """A stand-in for a broker, with every feature."""

    kernel = _AnyKernel()

    def __init__(self) -> None:
        anything = cast(Any, _Anything())
        self.features = {feature.name: feature.build(anything, anything) for feature in FEATURES}


def broker_table() -> Mapping[int, Row]:
    """Return the table of a broker without parts."""
    return build_table(cast(Any, _AnyBroker()))


def name_service_table() -> Mapping[int, Row]:
    """Return the table of a name server without parts."""
    anything = cast(Any, _Anything())
    processors = NameServiceProcessors(
        BrokerConfig(), anything, anything, local=None, now_ms=anything
    )
    return processors.table()


def generated() -> str:
    """Return the text below the marker."""
    lines = [
        "## Request codes that are served",
        "",
        "An asterisk marks administrative codes: from other hosts they are refused unless "
        "`remoteAdmin=true`. Codes from 70001 on are [ours](request-codes.md). The right is what "
        "[users](security.md) need while `authorizationEnabled` is on: all of the rights listed, "
        "or any one of those joined by `or`.",
        "",
        "| code | name | right | served by |",
        "|---|---|---|---|",
        *_served(broker_table(), "broker"),
        *_served(name_service_table(), "name server"),
        "",
        "## Request codes that are not served",
        "",
        "The broker answers them with code 3, `REQUEST_CODE_NOT_SUPPORTED`.",
        "",
        "| code | for | missed by |",
        "|---|---|---|",
    ]
    for codes, what, missed_by in UNSERVED:
        span = f"{codes[0]} to {codes[-1]}" if len(codes) > 3 else ", ".join(map(str, codes))
        lines.append(f"| {span} | {what} | {missed_by} |")
    return "\n".join(lines) + "\n"


def _served(table: Mapping[int, Row], by: str) -> Iterable[str]:
    names = {code.value: code.name for code in RequestCode}
    for code in sorted(code for code in table if code in names):
        row = table[code]
        name = f"`{names[code]}`{'*' if row.is_administration else ''}"
        yield f"| {code} | {name} | {_rights(row)} | {by} |"


def _rights(row: Row) -> str:
    permissions = [permission for permission in row.permissions if permission is not ADMINISTRATION]
    return ", ".join(
        f"{permission.kind} {' or '.join(action.value for action in permission.actions)}"
        for permission in permissions
    )


def own_codes() -> dict[str, str]:
    """Return the docstring of each of Rockhopper's request codes by name."""
    (definition,) = ast.parse(inspect.getsource(RequestCode)).body
    texts = {}
    for code, below in pairwise(cast(ast.ClassDef, definition).body):
        match code, below:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                texts[name] = text
    return texts


def own_table() -> str:
    """Return the table of Rockhopper's request codes."""
    table, texts = {**name_service_table(), **broker_table()}, own_codes()
    lines = ["| code | name | what it does | right |", "|---|---|---|---|"]
    for code in sorted(code for code in RequestCode if FIRST_OWN <= code < 80_000):
        right = _rights(table[code]) if code in table else ""
        lines.append(f"| {code.value} | `{code.name}` | {texts[code.name]} | {right} |")
    return "\n".join(lines) + "\n"


def own_page(current: str) -> str:
    """Return the page *current* with a new table."""
    begin, end = OWN_MARKERS
    before, _, rest = current.partition(begin)
    return f"{before}{begin}\n{own_table()}\n{end}{rest.partition(end)[2]}"


def page(current: str) -> str:
    """Return the page *current* with a new generated part."""
    return current.partition(MARKER)[0] + MARKER + "\n" + generated()


def main() -> int:
    """Write both pages."""
    for path, made in ((PAGE, page), (OWN_PAGE, own_page)):
        path.write_text(made(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{path} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
