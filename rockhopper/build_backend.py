"""The build backend: setuptools, in a copy of the source.

``pip install PATH`` and ``python -m build`` leave the checkout unchanged. Setuptools alone would
write ``build/`` and ``*.egg-info`` into it, and put modules into the wheel that an earlier build
left there. An editable installation compiles in place, as its users expect.

Builds are reproducible: the same source gives the same bytes in any folder and for any user, with
the same compiler, Python and setuptools. Files get the time of ``SOURCE_DATE_EPOCH``, in seconds.

    python rockhopper/build_backend.py      exit code 1 if parts are not compiled from the present
                                            sources and now could be
"""

import contextlib
import gzip
import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOOKS = (
    *("build_editable", "get_requires_for_build_editable", "prepare_metadata_for_build_editable"),
    *("get_requires_for_build_sdist", "get_requires_for_build_wheel"),
)
"""The hooks that setuptools serves unchanged."""
SOURCES = (
    *("pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "MANIFEST.in", "setup.cfg"),
    "rockhopper",
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.pyd", "*.egg-info")


def __getattr__(name: str) -> Any:
    if name not in HOOKS:
        raise AttributeError(name)
    return getattr(_setuptools(), name)


def _setuptools() -> Any:
    from setuptools import build_meta  # not installed in every build environment

    return build_meta


@contextlib.contextmanager
def in_a_copy() -> Iterator[None]:
    """Work in a copy of the source, which is the current directory of a build."""
    source = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="rockhopper-build-") as directory, _alike(directory):
        copy = Path(directory) / "source"
        copy.mkdir()
        for name in SOURCES:
            path = source / name
            if path.is_dir():
                copied = shutil.copyfile  # without modes: those of a checkout depend on a umask
                shutil.copytree(path, copy / name, True, IGNORED, copied)
            elif path.exists():
                shutil.copyfile(path, copy / name)
        for folder in (each for each in copy.rglob("*") if each.is_dir()):
            folder.chmod(0o755)  # copytree copies their modes in any case
        os.chdir(copy)
        try:
            yield
        finally:
            os.chdir(source)


@contextlib.contextmanager
def _alike(directory: str) -> Iterator[None]:
    """Keep the umask and the name of *directory* out of the build's result.

    Compiled parts have no debug information: it names headers, whose paths differ between machines,
    and the linker's build id is a hash over it. Setuptools uses CFLAGS in place of the flags that
    Python was built with, among them ``-O2`` and ``-DNDEBUG``, so these are repeated.
    """
    flags = os.environ.get("CFLAGS")
    usual = sysconfig.get_config_var("CFLAGS") or ""
    os.environ["CFLAGS"] = f"{usual} {flags or ''} -g0 -ffile-prefix-map={directory}=."
    mask = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(mask)
        if flags is None:
            del os.environ["CFLAGS"]
        else:
            os.environ["CFLAGS"] = flags


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """See PEP 517."""
    target = os.path.abspath(wheel_directory)
    with in_a_copy():
        name: str = _setuptools().build_wheel(target, config_settings, metadata_directory)
    return name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """See PEP 517."""
    target = os.path.abspath(metadata_directory)
    with in_a_copy():
        name: str = _setuptools().prepare_metadata_for_build_wheel(target, config_settings)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """See PEP 517."""
    target = os.path.abspath(sdist_directory)
    with in_a_copy():
        name: str = _setuptools().build_sdist(target, config_settings)
        _pack_anew(Path(target, name))
    return name


def _pack_anew(sdist: Path) -> None:
    """Rewrite the members of *sdist*, sorted by name, all with the same time, owner and mode."""
    now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

    def stripped(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = now, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() else 0o644
        member.pax_headers = {}
        return member

    with tarfile.open(sdist) as archive, tempfile.TemporaryFile() as plain:
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as packed:
            for member in sorted(archive, key=lambda each: each.name):
                packed.addfile(stripped(member), archive.extractfile(member))
        plain.seek(0)
        with open(f"{sdist}.new", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, now) as compressed:
            shutil.copyfileobj(plain, compressed)
    os.replace(f"{sdist}.new", sdist)


def find_uncompiled(checkout: Path) -> list[str]:
    """Return the missing and stale extension modules of an editable installation in *checkout*."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())
    modules = project["tool"]["setuptools"]["ext-modules"]
    return [module["name"] for module in modules if not _is_compiled(checkout, module)]


def _is_compiled(checkout: Path, module: dict[str, Any]) -> bool:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    file = checkout / (module["name"].replace(".", "/") + suffix)
    sources = [checkout / name for name in (*module["sources"], *module.get("depends", ()))]
    return file.exists() and all(
        source.stat().st_mtime <= file.stat().st_mtime for source in sources if source.exists()
    )


def can_compile() -> bool:
    """Return whether a C compiler and Python's headers are installed."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return (Path(sysconfig.get_path("include")) / "Python.h").exists() and bool(
        shutil.which(compiler)
    )


if __name__ == "__main__":
    sys.exit(bool(can_compile() and find_uncompiled(Path(__file__).parents[1])))
