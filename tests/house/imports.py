"""Figures of imports: the modules that a reader of the fast path may have to read."""

from tests.house.tree import FAST_PATH, Tree, is_in


def closure_of_fast_path(tree: Tree) -> list[str]:
    """Return all modules that the fast path imports, directly or not, at any place in the code."""
    found: set[str] = set()
    left = [name for name in tree.by_name if is_in(name, FAST_PATH)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left.extend(tree.imports(tree.by_name[name]))
    return sorted(str(tree.by_name[name].path) for name in found)
