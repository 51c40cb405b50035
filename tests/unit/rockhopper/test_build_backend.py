"""A build leaves the source alone, and what could be compiled later is noticed."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from rockhopper.build_backend import find_uncompiled, in_a_copy

PROJECT = """
[build-system]
requires = ["setuptools"]
[project]
name = "made-up"
version = "1"
[tool.setuptools.packages.find]
include = ["rockhopper*"]
[[tool.setuptools.ext-modules]]
name = "rockhopper.part._there"
sources = ["none.c"]
[[tool.setuptools.ext-modules]]
name = "rockhopper.part._away"
sources = ["none.c"]
optional = true
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    (root / "broker").mkdir(parents=True)
    (root / "broker" / "__init__.py").touch()
    (root / "rockhopper").mkdir()
    (root / "rockhopper" / "__init__.py").touch()
    (root / "rockhopper" / "broker").symlink_to("../broker")
    (root / "pyproject.toml").write_text(PROJECT.partition("[[")[0])
    monkeypatch.chdir(root)
    return root


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_a_wheel_is_built_beside_the_source(checkout: Path, tmp_path: Path) -> None:
    before = listing(checkout)
    build = f"import rockhopper.build_backend as backend; backend.build_wheel({str(tmp_path)!r})"
    command = [sys.executable, "-W", "ignore", "-P", "-c", build]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert listing(checkout) == before
    (name,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(name) as wheel:
        assert "rockhopper/broker/__init__.py" in wheel.namelist()


def test_what_an_earlier_build_left_is_not_copied(checkout: Path) -> None:
    (checkout / "broker" / "_old.so").touch()
    (checkout / "build").mkdir()
    with in_a_copy():
        assert listing(Path.cwd()) == {
            *("broker", "broker/__init__.py", "pyproject.toml", "rockhopper"),
            *("rockhopper/__init__.py", "rockhopper/broker"),
        }
        assert Path("rockhopper/broker").is_symlink()
    assert Path.cwd() == checkout


def test_parts_that_are_not_compiled_are_found(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(PROJECT)
    (checkout / "rockhopper" / "part").mkdir()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (checkout / "rockhopper" / "part" / f"_there{suffix}").touch()
    assert find_uncompiled(checkout) == ["rockhopper.part._away"]


def test_nothing_is_to_be_done_in_a_checkout_that_is_compiled() -> None:
    root = Path(__file__).parents[3]
    if find_uncompiled(root):
        pytest.skip("this checkout is not compiled")
    backend = root / "rockhopper" / "build_backend.py"
    done = subprocess.run([sys.executable, backend], env=os.environ, check=False)
    assert done.returncode == 0
