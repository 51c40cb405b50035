"""The recipes of CONTRIBUTING.md and the tables of ARCHITECTURE.md, held against the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = dict(
    re.findall(
        r"^- \*\*(an? [a-z ]+)\*\*(.+?)(?=^- |\Z)",
        (ROOT / "CONTRIBUTING.md").read_text().partition("## How to add …")[2],
        re.MULTILINE | re.DOTALL,
    )
)


def paths_in(text: str) -> list[str]:
    """What stands in backticks and looks like a path from the root of the checkout."""
    return re.findall(r"`([a-z][\w.-]*/[\w./-]*)`", text)


def test_there_is_a_recipe_for_everything_that_is_often_added() -> None:
    wanted = {"request code", "setting", "file format", "command", "job", "metric"}
    assert wanted <= {name.partition(" ")[2] for name in RECIPES}


@pytest.mark.parametrize("name", RECIPES)
def test_each_file_and_name_of_a_recipe_exists(name: str) -> None:
    recipe = RECIPES[name]
    paths = [ROOT / path for path in paths_in(recipe)]
    assert paths
    assert [path for path in paths if not path.exists()] == []

    sources = "".join(path.read_text() for path in paths if path.suffix == ".py")
    names = re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_]+)`", recipe)
    assert [each for each in names if not re.search(rf"\b{each}", sources)] == []


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    ],
)
def test_paths_that_pages_name_exist(page: str) -> None:
    tops = {path.name for path in ROOT.iterdir()} - {"build", "data", "dist", "rockhopper"}
    named = [path for path in paths_in((ROOT / page).read_text()) if path.partition("/")[0] in tops]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_everything_that_the_architecture_names_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    homes = (ROOT, ROOT / "rockhopper/broker", ROOT / "rockhopper/broker/store")
    assert [
        path for path in paths_in(text) if not any((home / path).exists() for home in homes)
    ] == []
    files = {
        path.name for top in ("broker", "client", "protocol") for path in (ROOT / top).rglob("*.*")
    }
    assert set(re.findall(r"`(\w+\.(?:py|c))`", text)) <= files


def test_the_architecture_has_a_place_for_each_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for top in ("broker", "client", "protocol", "pipeline")
        for path in (ROOT / top).glob("*/__init__.py")
    }
    assert {folder for folder in folders if folder not in text} == set()


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs"]
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    top = ROOT / page
    for file in top.rglob("*.md") if top.is_dir() else [top]:
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", file.read_text())
        files = [target for target in targets if "://" not in target]
        assert [target for target in files if not (file.parent / target).exists()] == []
