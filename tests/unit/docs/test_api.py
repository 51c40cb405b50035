"""Each name that the package exports stands in a page of classes."""

import re
from pathlib import Path

import rockhopper
from rockhopper.client import sync

PAGES = Path(__file__).parents[3] / "docs/api"
DESCRIBED = {
    name
    for page in PAGES.glob("*.md")
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
}


def test_each_exported_name_is_described() -> None:
    exported = {f"rockhopper.{name}" for name in rockhopper.__all__}
    exported |= {f"rockhopper.client.sync.{name}" for name in sync.__all__}
    assert exported - DESCRIBED == set()
