"""A tiny checkout, for tests of the house figures."""

from pathlib import Path

from tests.house.tree import Tree


def house(root: Path, **files: str) -> Tree:
    """Create a checkout with these modules; names are dotted, with ``__`` for the dots."""
    for name, text in files.items():
        home = root if name.startswith("tests__") else root / "rockhopper"
        path = home / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(root)
