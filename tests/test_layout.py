"""One import name: what is installed is ``rockhopper``, and no module exists twice."""

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution, entry_points, packages_distributions, version
from pathlib import Path

import pytest

import rockhopper

ROOT = Path(__file__).parents[1]
PARTS = ("broker", "client", "pipeline", "protocol")
pytestmark = pytest.mark.filterwarnings("error")


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)


def test_rockhopper_is_the_only_name_installed() -> None:
    ours = [name for name, owners in packages_distributions().items() if "rockhopper-mq" in owners]
    assert [name for name in ours if not name.startswith("__editable__")] == ["rockhopper"]
    assert (distribution("rockhopper-mq").read_text("top_level.txt") or "").split() == [
        "rockhopper"
    ]
    (plugin,) = (each for each in entry_points(group="pytest11") if each.name == "rockhopper")
    assert plugin.value == "rockhopper.pytest_plugin"


def test_an_editable_installation_is_a_path_that_type_checkers_follow() -> None:
    ran = python("-c", "import sys; print([f for f in sys.meta_path if 'editable' in repr(f)])")
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("part", PARTS)
def test_a_bare_name_is_refused_in_the_checkout(part: str) -> None:
    ran = python("-c", f"import {part}")
    assert ran.returncode == 1
    assert f"ImportError: this package is imported as rockhopper.{part}" in ran.stderr


@pytest.mark.parametrize("part", ["broker", "client", "pipeline"])
def test_a_bare_command_names_the_new_one(part: str) -> None:
    ran = python("-m", part, "--help")
    assert ran.returncode == 1
    assert ran.stderr.rstrip().endswith(f"python -m rockhopper.{part}")


@pytest.mark.parametrize("part", ["broker", "client", "pipeline"])
def test_each_part_with_a_command_runs_as_a_module(part: str) -> None:
    ran = python("-m", f"rockhopper.{part}", "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: ")


def test_the_face_is_lazy_and_whole() -> None:
    ran = python(
        "-c",
        "import sys, rockhopper\n"
        "from rockhopper import Admin, Consumer, Message, Producer\n"
        "print(*sorted(name for name in sys.modules if name.startswith('rockhopper.broker')))\n"
        "from rockhopper import *\n"
        "assert Broker is rockhopper.broker.Broker\n"
        "assert Producer is rockhopper.client.Producer\n",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "\n"
    assert set(rockhopper.client.__all__) < set(rockhopper.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        getattr(rockhopper, "Prodcuer")  # noqa: B009
    assert {"Producer", "Broker", "client"} < set(dir(rockhopper))
    assert rockhopper.__version__ in (version("rockhopper-mq"), "unknown")


def test_the_client_imports_only_what_is_used() -> None:
    ran = python(
        "-c",
        "import sys, rockhopper.client\n"
        "def loaded(): return [n for n in sys.modules if n.startswith('rockhopper.client.')]\n"
        "assert loaded() == [], loaded()\n"
        "assert 'typing' not in sys.modules\n"
        "from rockhopper.client import Producer\n"
        "assert 'rockhopper.client.consumer' not in sys.modules\n"
        "assert set(rockhopper.client._PLACES) == set(rockhopper.client.__all__)\n"
        "from rockhopper.client import *\n"
        "assert Consumer is rockhopper.client.Consumer\n",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
        getattr(rockhopper.client, "Prodcuer")  # noqa: B009
    assert {"Producer", "Consumer"} < set(dir(rockhopper.client))


def test_links_of_the_checkout_are_relative() -> None:
    for part in PARTS:
        link = ROOT / part
        assert link.is_symlink()
        assert link.readlink() == Path("rockhopper") / part


def test_a_checkout_without_links_lacks_only_the_short_names(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "rockhopper", tmp_path / "rockhopper", ignore=ignored)
    for part in PARTS:
        # What Git writes in the place of a link when core.symlinks is off.
        (tmp_path / part).write_text(f"rockhopper/{part}")
    script = "import rockhopper.broker, rockhopper.pipeline as p; print(p.__file__)"
    ran = python("-c", script, cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.rstrip() == str(tmp_path / "rockhopper" / "pipeline" / "__init__.py")


def test_files_have_no_section_banners() -> None:
    """A file that needs them has two reasons to change."""
    banner = re.compile(r"^\s*#\s*[-=#]{2,}", re.MULTILINE)
    files = [path for part in (*PARTS, "tests") for path in sorted((ROOT / part).rglob("*.py"))]
    assert len(files) > 1000
    assert [str(path) for path in files if banner.search(path.read_text())] == []
