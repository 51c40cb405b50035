"""Figures of names: repeated class names, and vague verbs."""

from collections import defaultdict
from collections.abc import Iterator

from tests.house.tree import Tree

VAGUE_VERBS = ("take", "add", "end", "begin", "of", "give", "put")


def repeated_class_names(tree: Tree) -> Iterator[str]:
    """Yield class names that are defined twice or more; a leading underscore is ignored."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in tree.modules:
        for node in module.classes:
            places[node.name.lstrip("_")].append(f"{module.path}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{name}: {', '.join(found)}"


def classes_with_method(tree: Tree, name: str) -> Iterator[str]:
    """Yield classes that define a method of this name."""
    for module in tree.modules:
        for node in module.classes:
            if any(getattr(each, "name", None) == name for each in node.body):
                yield f"{module.path}:{node.lineno} {node.name}.{name}"
