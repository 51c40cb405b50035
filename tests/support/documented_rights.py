"""The examples of permissions in docs/security.md: its commands and its table of rights."""

import re
import shlex
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"
COMMAND = re.compile(r"^ {4}rockhopper ((?:user|acl) .*?)(?: +#.*)?$", re.MULTILINE)
RIGHT = re.compile(r"`([^`]+)` ((?:[A-Z][a-z]+ ?)+)")
HEAD = "| who | rights |\n| --- | --- |\n"


def documented_commands() -> list[list[str]]:
    """Return the arguments of each `rockhopper user` and `rockhopper acl` in code blocks."""
    pages = sorted(PAGES.rglob("*.md"))
    return [shlex.split(line) for page in pages for line in COMMAND.findall(page.read_text())]


def documented_rights() -> dict[str, list[tuple[str, list[str]]]]:
    """Return, for each role, the required actions on resources."""
    rows = (PAGES / "security.md").read_text().partition(HEAD)[2].partition("\n\n")[0]
    found = {}
    for row in rows.splitlines():
        _, who, rights, _ = map(str.strip, row.split("|"))
        found[who] = [(resource, actions.split()) for resource, actions in RIGHT.findall(rights)]
    return found
