"""Tasks begin in rockhopper/tasks.py alone: there none of them ends in silence."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTERS = {"create_task", "ensure_future"}


def places(source: str) -> list[int]:
    """The lines that start a task, those of a TaskGroup left out: that one raises what they do."""
    if not any(starter in source for starter in STARTERS):
        return []
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        and "TaskGroup" in ast.unparse(item.context_expr)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in STARTERS:
            if not (isinstance(node.value, ast.Name) and node.value.id in groups):
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            found += [node.lineno for name in node.names if name.name in STARTERS]
    return found


@pytest.mark.parametrize("folder", ["client", "broker"])
def test_no_task_begins_elsewhere(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in places(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, f"start these tasks with rockhopper/tasks.py: {wrong}"


@pytest.mark.parametrize(
    "source",
    [
        "asyncio.create_task(work())",
        "asyncio.get_running_loop().create_task(work())",
        "asyncio.ensure_future(work())",
        "start = loop.create_task",
        "from asyncio import create_task",
    ],
)
def test_each_way_to_start_a_task_is_seen(source: str) -> None:
    assert places(source) == [1]


def test_a_task_group_may_start_tasks() -> None:
    assert not places(
        "async def f():\n  async with asyncio.TaskGroup() as group:\n    group.create_task(w())"
    )
