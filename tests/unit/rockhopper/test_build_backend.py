"""A build leaves the source alone, and what could be compiled later is noticed."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from rockhopper.build_backend import can_compile, find_uncompiled, in_a_copy

pytestmark = pytest.mark.costly

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
sources = ["rockhopper/there.c"]
[[tool.setuptools.ext-modules]]
name = "rockhopper.part._away"
sources = ["none.c"]
optional = true
"""
MODULE = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_there", __FILE__, -1, NULL};
PyMODINIT_FUNC PyInit__there(void) { return PyModule_Create(&module); }
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    (root / "rockhopper" / "broker").mkdir(parents=True)
    (root / "rockhopper" / "__init__.py").touch()
    (root / "rockhopper" / "broker" / "__init__.py").touch()
    (root / "broker").symlink_to("rockhopper/broker")
    (root / "pyproject.toml").write_text(PROJECT.partition("[[")[0])
    monkeypatch.chdir(root)
    return root


def build(kind: str, target: Path, umask: int = 0o022) -> Path:
    """Have a process of its own build *kind* from the current directory into *target*."""
    command = f"import rockhopper.build_backend as backend; backend.build_{kind}({str(target)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-P", "-c", command],
        check=True,
        stdout=subprocess.DEVNULL,
        umask=umask,
    )
    (file,) = target.iterdir()
    return file


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_a_wheel_is_built_beside_the_source(checkout: Path, tmp_path: Path) -> None:
    before = listing(checkout)
    (tmp_path / "dist").mkdir()
    file = build("wheel", tmp_path / "dist")
    assert listing(checkout) == before
    with zipfile.ZipFile(file) as wheel:
        assert "rockhopper/broker/__init__.py" in wheel.namelist()


@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_place_umask_and_time_of_a_build_do_not_show(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (checkout / "pyproject.toml").write_text(PROJECT.rpartition("[[")[0])
    (checkout / "rockhopper" / "there.c").write_text(MODULE)
    other = tmp_path / "a folder with another name"
    shutil.copytree(checkout, other, symlinks=True)
    built = []
    for each, umask in ((checkout, 0o022), (other, 0o077)):
        target = tmp_path / f"dist {umask}"
        target.mkdir()
        for path in (each, *each.rglob("*")):
            path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
            os.utime(path, (umask, 10**9 + umask))
        monkeypatch.chdir(each)
        built.append(build(kind, target, umask).read_bytes())
    assert built[0] == built[1]


@pytest.mark.skipif(not can_compile(), reason="needs a C compiler and Python's headers")
def test_a_compiled_part_names_no_folder_of_the_build(checkout: Path, tmp_path: Path) -> None:
    (checkout / "pyproject.toml").write_text(PROJECT.rpartition("[[")[0])
    (checkout / "rockhopper" / "there.c").write_text(MODULE)
    (tmp_path / "dist").mkdir()
    with zipfile.ZipFile(build("wheel", tmp_path / "dist")) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith(".so"))
        assert b"rockhopper-build-" not in wheel.read(name)


def test_what_an_earlier_build_left_is_not_copied(checkout: Path) -> None:
    (checkout / "broker" / "_old.so").touch()
    (checkout / "build").mkdir()
    with in_a_copy():
        assert listing(Path.cwd()) == {
            *("pyproject.toml", "rockhopper", "rockhopper/__init__.py"),
            *("rockhopper/broker", "rockhopper/broker/__init__.py"),
        }
    assert Path.cwd() == checkout


def test_parts_that_are_not_compiled_are_found(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(PROJECT)
    (checkout / "rockhopper" / "part").mkdir()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    (checkout / "rockhopper" / "part" / f"_there{suffix}").touch()
    assert find_uncompiled(checkout) == ["rockhopper.part._away"]


def test_parts_that_are_older_than_their_sources_are_found(checkout: Path) -> None:
    (checkout / "pyproject.toml").write_text(PROJECT)
    (checkout / "rockhopper" / "part").mkdir()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    part, source = (
        checkout / "rockhopper" / "part" / f"_there{suffix}",
        checkout / "rockhopper/there.c",
    )
    for path in (part, source):
        path.touch()
    for time_s, found in (
        (1, ["rockhopper.part._away"]),
        (3, ["rockhopper.part._there", "rockhopper.part._away"]),
    ):
        os.utime(part, (2, 2))
        os.utime(source, (time_s, time_s))
        assert find_uncompiled(checkout) == found


def test_nothing_is_to_be_done_in_a_checkout_that_is_compiled() -> None:
    root = Path(__file__).parents[3]
    if find_uncompiled(root):
        pytest.skip("this checkout is not compiled")
    backend = root / "rockhopper" / "build_backend.py"
    done = subprocess.run([sys.executable, backend], env=os.environ, check=False)
    assert done.returncode == 0


@pytest.mark.usefixtures("checkout")
def test_python_s_own_flags_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = sysconfig.get_config_var("CFLAGS")
    monkeypatch.setenv("CFLAGS", "-Wextra")
    with in_a_copy():
        flags = os.environ["CFLAGS"]
        assert flags.startswith(f"{usual} -Wextra -g0 ")
    assert os.environ["CFLAGS"] == "-Wextra"
