"""Try a broker without one of its features: ``python -m tests.house.deletable --feature sinks``.

In a copy of the checkout, this deletes the folder of the feature, its import and list entry in
app.py, and the tests that it declares as its own. It does the same for features that require it.
Then it starts a broker, and runs every other test of ``make test``. A test that fails depends on
the feature and should not. Without ``--feature``, it tries one by turns: another one with each
commit. What follows ``--`` are options of pytest.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from rockhopper.broker.app import FEATURES
from rockhopper.broker.feature import Feature

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
APP = Path("rockhopper/broker/app.py")
FOLDER = Path("rockhopper/broker/features")
START = """
import asyncio
from rockhopper import Broker, Message, Producer

async def main():
    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        await producer.send(Message("orders", b"hello"))

asyncio.run(main())
"""


@click.command()
@click.option("--feature", "name", help="The feature; else one by turns.")
@click.option("--start-only", is_flag=True, help="Start a broker and send; run no tests.")
@click.argument("pytest_options", nargs=-1)
def main(name: str | None, start_only: bool, pytest_options: tuple[str, ...]) -> None:
    """Delete one feature in a copy, and run every test that is not its own."""
    known = {feature.name: feature for feature in FEATURES}
    if name is None:
        commits = subprocess.check_output(["git", "rev-list", "--count", "HEAD"], cwd=ROOT)
        name = sorted(known)[int(commits) % len(known)]
    if name not in known:
        raise click.BadParameter(f"the features are {', '.join(sorted(known))}")
    gone = with_dependents(FEATURES, name)
    copy = BUILD / f"without-{name}"
    copy_checkout(copy)
    for feature in gone:
        delete(copy, feature)
    own = [f"--deselect={test}" for feature in gone for test in feature.tests if "::" in test]
    click.echo(f"without {', '.join(feature.name for feature in gone)}, in {copy}", err=True)
    environment = os.environ | {"PYTHONPATH": str(copy)}
    commands = [[sys.executable, "-c", START]]
    if not start_only:
        commands.append([sys.executable, "-m", "pytest", "-q", *own, *pytest_options])
    for command in commands:
        if code := subprocess.run(command, cwd=copy, env=environment, check=False).returncode:
            sys.exit(code)


def with_dependents(features: tuple[Feature, ...], name: str) -> list[Feature]:
    """Return the feature *name* and those that require it, directly or not, in list order."""
    gone: list[Feature] = []
    for feature in features:
        if feature.name == name or {each.name for each in gone} & set(feature.requires):
            gone.append(feature)
    return gone


def copy_checkout(copy: Path) -> None:
    """Copy the files that Git knows or would add, links as links, and the compiled modules."""
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "rockhopper").rglob("*.so")]
    for name in [*listed.split("\0"), *compiled]:
        source = ROOT / name
        if name and (source.exists() or source.is_symlink()):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name, follow_symlinks=False)


def delete(copy: Path, feature: Feature) -> None:
    """Delete the folder of *feature*, its tests, and its lines in app.py."""
    files = [test for test in feature.tests if "::" not in test]
    for name in (str(FOLDER / feature.name), *files):
        path = copy / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    app = copy / APP
    app.write_text(without(app.read_text(), feature.name))


def without(source: str, name: str) -> str:
    """Return the source of app.py without the import and the list entry of the feature *name*."""
    module = f"rockhopper.broker.features.{name}.feature"
    lines = source.splitlines(keepends=True)
    classes: set[str] = set()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            classes |= {alias.name for alias in node.names}
            del lines[node.lineno - 1 : node.end_lineno]
    source = "".join(lines)
    for node in ast.parse(source).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        target = targets[0] if targets else None
        value = getattr(node, "value", None)
        if (
            isinstance(target, ast.Name)
            and target.id == "FEATURES"
            and isinstance(value, ast.Tuple)
        ):
            kept = [ast.unparse(each) for each in value.elts if _class_of(each) not in classes]
            whole = ast.get_source_segment(source, value)
            assert whole is not None
            return source.replace(whole, f"({''.join(f'{each}, ' for each in kept)})", 1)
    raise ValueError("app.py has no list of FEATURES")


def _class_of(element: ast.expr) -> str:
    called = element.func if isinstance(element, ast.Call) else element
    return called.id if isinstance(called, ast.Name) else ""


if __name__ == "__main__":
    main()
