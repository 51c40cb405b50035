"""Links of the README as the package index shows it."""

import re
from pathlib import Path

import pytest

from rockhopper.long_description import absolute

HOME = "https://forge.example/rockhopper"


@pytest.mark.parametrize(
    ("link", "leads_to"),
    [
        ("docs/tls.md#own", f"{HOME}/blob/main/docs/tls.md#own"),
        ("docker/", f"{HOME}/tree/main/docker/"),
        ("#with-spark", f"{HOME}#with-spark"),
        ("https://example.org/a", "https://example.org/a"),
        ("mailto:a@example.org", "mailto:a@example.org"),
    ],
)
def test_where_a_link_leads(link: str, leads_to: str) -> None:
    assert absolute(f"see [`it`]({link}),", HOME) == f"see [`it`]({leads_to}),"


def test_a_picture_is_the_file_and_not_the_page_about_it() -> None:
    assert absolute("![it](docs/it.png)", HOME) == f"![it]({HOME}/raw/main/docs/it.png)"


def test_the_readme_has_no_relative_link_left() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]*)\)", absolute(readme, HOME))
    assert targets
    assert [target for target in targets if "://" not in target] == []
