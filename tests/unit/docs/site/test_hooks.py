"""Links of pages: to pages of the site where there are any, to the forge where not."""

import logging

import pytest

pytest.importorskip("mkdocs", reason="the site is built with the extra [docs]")

from docs.site.hooks import FORGE, rewritten, searched, warn_of_excluded

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
        ("docs/app.md", "app.md", "examples/", f"{FORGE}/tree/main/docs/examples"),
    ],
)
def test_where_a_link_leads(home: str, place: str, link: str, leads_to: str) -> None:
    assert rewritten(f"see [it]({link}).", home, place, PAGES) == f"see [it]({leads_to})."


@pytest.mark.parametrize(
    ("home", "link", "reads"),
    [
        ("README.md", "[docs/tls.md](docs/tls.md#own)", "[TLS](tls.md#own)"),
        ("docs/app.md", "see ([tls.md](tls.md)).", "see ([TLS](tls.md))."),
        ("docs/app.md", "[tls.py](tls.md), [`tls`](tls.md)", "[tls.py](tls.md), [`tls`](tls.md)"),
        (
            "docs/app.md",
            "[.github/a.md](../README.md)",
            f"[.github/a.md]({FORGE}/blob/main/README.md)",
        ),
    ],
)
def test_a_link_named_by_its_file_reads_as_the_title(home: str, link: str, reads: str) -> None:
    assert rewritten(link, home, "app.md", PAGES) == reads


def test_a_link_to_a_file_that_the_site_leaves_out_is_a_warning() -> None:
    text = "Doc file 'app.md' contains a link to 'a.py' which is excluded from the built site."
    record = logging.LogRecord("mkdocs.structure.pages", logging.INFO, "", 0, text, (), None)
    assert warn_of_excluded(record)
    assert (record.levelno, record.levelname) == (logging.WARNING, "WARNING")


def test_a_search_finds_settings_before_others_and_no_decisions() -> None:
    assert searched("decisions/0013-batches-on-several-brokers.md") == {"exclude": True}
    pages = ("operations/troubleshooting.md", "settings.md", "tls.md", "architecture.md")
    boosts = [searched(each)["boost"] for each in pages]
    assert boosts == sorted(boosts, reverse=True)


@pytest.mark.parametrize("page", ["delay-and-timers.md", "security.md", "operations/service.md"])
def test_a_search_finds_a_page_before_those_that_mention_its_subject(page: str) -> None:
    assert searched(page)["boost"] > searched("producer.md")["boost"]
