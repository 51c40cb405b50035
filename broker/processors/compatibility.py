"""Makes ``docs/compatibility.md``: ``make compatibility``, or ``python -m`` this module.

Which request codes are served comes from the processor tables, what is not from unserved.py. The
part of the page above the marker is written by hand and stays.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from rockhopper.broker.nameserver.processors import NameServiceProcessors
from rockhopper.broker.processors.table import build_table
from rockhopper.broker.processors.unserved import UNSERVED
from rockhopper.broker.remoting.dispatcher import Row
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.protocol.codes import RequestCode

PAGE = Path("docs/compatibility.md")
MARKER = "<!-- Made by `make compatibility`: do not edit below. -->\n"


class _Anything:
    """Stands for all parts of a broker: the table's keys do not depend on them."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self, *_: object, **__: object) -> Any:
        return _Anything()


def broker_table() -> Mapping[int, Row]:
    """The request codes that a broker serves, of no broker."""
    return build_table(cast(Any, _Anything()))


def name_service_table() -> Mapping[int, Row]:
    """The same for a name service."""
    anything = cast(Any, _Anything())
    processors = NameServiceProcessors(
        BrokerConfig(), anything, anything, local=None, now_ms=anything
    )
    return processors.table()


def generated() -> str:
    """What stands below the marker."""
    lines = [
        "## Request codes that are served",
        "",
        "An asterisk marks those that are for operators: from other hosts they are refused unless "
        "`remoteAdmin=true`. Codes from 70001 on are [ours](request-codes.md).",
        "",
        "| code | name | served by |",
        "|---|---|---|",
        *_served(broker_table(), "broker"),
        *_served(name_service_table(), "name service"),
        "",
        "## Request codes that are not",
        "",
        "They are answered with code 3, `REQUEST_CODE_NOT_SUPPORTED`.",
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
        yield f"| {code} | `{names[code]}`{'*' if table[code].is_administration else ''} | {by} |"


def page(current: str) -> str:
    """*current* with what is generated made anew."""
    return current.partition(MARKER)[0] + MARKER + "\n" + generated()


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
