"""A checkout of a few lines, for the figures of the house."""

from pathlib import Path

from tests.house.tree import Tree


def house(root: Path, **files: str) -> Tree:
    """A checkout with these modules, by their dotted names with ``__`` for the dots."""
    for name, text in files.items():
        home = root if name.startswith("tests__") else root / "rockhopper"
        path = home / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)
