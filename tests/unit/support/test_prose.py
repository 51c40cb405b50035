"""How pages are taken apart for the tests that compare them with the code."""

from tests.support.prose import ROOT, Page, is_installed, newest_changes, pages

PAGE = Page(
    "docs/page.md",
    """# Title

First sentence, with `code` in
it. Second one.

- an item. `Third` sentence

| head | other |
|---|---|
| `a\\|b` | 12 KB |

```bash
rockhopper topic list
```

    indented one

    indented two
After.
""",
)


def test_sentences_are_joined_over_lines_and_begin_where_they_are_written() -> None:
    assert [(line.number, line.text) for line in PAGE.sentences()] == [
        (1, "# Title"),
        (3, "First sentence, with `code` in it."),
        (4, "Second one."),
        (6, "- an item."),
        (6, "`Third` sentence"),
        (16, "indented one"),
        (18, "indented two After."),
        (10, "`a|b`"),
        (10, "12 KB"),
    ]


def test_tables_have_heads_and_rows() -> None:
    (table,) = PAGE.tables()
    assert table.heads == ("head", "other")
    assert table.rows == ((10, ("`a|b`", "12 KB")),)


def test_blocks_are_the_fenced_and_the_indented_ones() -> None:
    assert [(block.number, block.language, block.text) for block in PAGE.blocks()] == [
        (12, "bash", "rockhopper topic list"),
        (16, "", "indented one\n\nindented two"),
    ]


def test_what_stands_in_backticks_is_quoted() -> None:
    assert [line.text for line in PAGE.quoted()] == ["code", "Third", "a\\|b"]


def test_history_is_no_prose() -> None:
    names = {page.name for page in pages()}
    assert {"README.md", "docs/security.md", "docs/operations/limits.md"} <= names
    assert not any(name.startswith("docs/decisions/") for name in names)


def test_of_the_changelog_the_newest_release_and_what_comes_after_it_are_prose() -> None:
    assert "CHANGELOG.md" in {page.name for page in pages()}
    text = "# Changelog\n\n## [Unreleased]\n\n## [0.3.0]\n\nnew\n\n## [0.2.0]\n\nold\n"
    assert newest_changes(Page("CHANGELOG.md", text)).text == text[: text.index("## [0.2.0]")]
    assert newest_changes(Page("CHANGELOG.md", "## [0.2.0]\n")).text == "## [0.2.0]\n"


def test_pages_of_others_are_not_ours() -> None:
    for name in (
        "tests/interop/node/node_modules/long/README.md",
        "docs/example-project/.venv/lib/python3.11/site-packages/a/LICENSE.md",
        "docs/example-project/.pytest_cache/README.md",
    ):
        assert is_installed(ROOT / name)
    assert not is_installed(ROOT / ".github" / "SECURITY.md")
    assert {page.name for page in pages()} >= {"tests/interop/README.md", ".github/SECURITY.md"}
