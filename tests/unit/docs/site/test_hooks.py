"""Links of pages: to pages of the site where there are any, to the forge where not."""

import pytest

pytest.importorskip("mkdocs", reason="the site is built with the extra [docs]")

from docs.site.hooks import FORGE, rewritten

PAGES = {"tls.md", "architecture.md", "operations/limits.md"}


@pytest.mark.parametrize(
    ("home", "place", "link", "leads_to"),
    [
        ("README.md", "readme.md", "docs/tls.md#own", "tls.md#own"),
        ("README.md", "readme.md", "#with-spark", "#with-spark"),
        ("README.md", "readme.md", "docker/", f"{FORGE}/tree/main/docker"),
        ("docs/tls.md", "tls.md", "../ARCHITECTURE.md", "architecture.md"),
        ("docs/tls.md", "tls.md", "operations/limits.md", "operations/limits.md"),
        ("docs/operations/limits.md", "operations/limits.md", "../tls.md#a", "../tls.md#a"),
        (
            "docs/operations/limits.md",
            "operations/limits.md",
            "../../docker/broker.conf",
            f"{FORGE}/blob/main/docker/broker.conf",
        ),
        ("docs/tls.md", "tls.md", "https://example.org/tls.md", "https://example.org/tls.md"),
        ("docs/tls.md", "tls.md", "missing.md", "missing.md"),
    ],
)
def test_where_a_link_leads(home: str, place: str, link: str, leads_to: str) -> None:
    assert rewritten(f"see [it]({link}).", home, place, PAGES) == f"see [it]({leads_to})."
