"""The wheel, installed beside a project that has packages broker and client of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from rockhopper.pipeline.packaging import BUNDLED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
OWN = {
    "broker/__init__.py": "NAME = 'my broker'\n",
    "client/__init__.py": "NAME = 'my client'\n",
    "pipeline/__init__.py": "NAME = 'my pipeline'\n",
    "protocol.py": "NAME = 'my protocol'\n",
}
TESTS = """
import broker, client, pipeline, protocol
from rockhopper import Message, Producer

def test_names_are_mine():
    names = [each.NAME for each in (broker, client, pipeline, protocol)]
    assert names == ["my broker", "my client", "my pipeline", "my protocol"]

async def test_the_broker_is_theirs(rockhopper):
    async with Producer() as producer:
        receipt = await producer.send(Message("orders", b"42"))
    assert receipt.queue.topic == "orders"
"""
APPLICATION = """
import asyncio, sys
import broker, client, pipeline, protocol
import rockhopper
from rockhopper import Broker, Producer
from rockhopper.broker.settings.config_file import build_config

assert "site-packages" in rockhopper.__file__, rockhopper.__file__

async def main():
    ports = dict.fromkeys(("listenPort", "namesrvPort", "httpPort"), "0")
    config = build_config({"storePathRootDir": sys.argv[1], "brokerIP1": "127.0.0.1", **ports})
    async with Broker(config) as theirs:
        async with Producer(theirs.nameserver) as producer:
            for number in range(3):
                await producer.send("orders", b"%d" % number)

asyncio.run(main())
"""
SPARK = """
import sys
import broker, client, pipeline, protocol
from rockhopper.pipeline import local_session

spark = local_session(master="local[2]")
frame = spark.read.format("rocketmq-store").option("path", sys.argv[1]).load()
assert sorted(bytes(row.body) for row in frame.select("body").collect()) == [b"0", b"1", b"2"]
source = sys.modules["rockhopper.pipeline.store_source.source"].StoreSource
assert source.__module__ == "rockhopper.pipeline.store_source.source"
spark.stop()
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "PYTHON", "COV_"))
    }
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads of the checkout, without what targets leave in it."""
    target = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "rockhopper", target / "rockhopper", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", ".", cwd=source)
    (file,) = (source / "dist").glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and with the dependencies that are here."""
    home = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", home, cwd=home)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=home)
    (packages,) = home.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but the .pth files there, as our editable one, are not.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def sources(root: Path) -> set[str]:
    """Files of ours below *root*, by the names under which they are imported."""
    suffixes = (".py", ".pyi", ".proto", ".binpb", ".html", ".css", ".js", ".txt", ".typed")
    return {
        path.relative_to(root).as_posix()
        for path in (root / "rockhopper").rglob("*")
        if path.suffix in suffixes
    }


def test_the_wheel_has_every_file_and_one_name(source: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert {name for name in names if not name.endswith(".so")} == sources(source)
        assert not [each for each in archive.infolist() if (each.external_attr >> 28) == 0xA]
        (top_level,) = (name for name in archive.namelist() if name.endswith("/top_level.txt"))
        assert archive.read(top_level) == b"rockhopper\n"


def test_an_sdist_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "setuptools>=77", cwd=tmp_path)
    build = f"import setuptools.build_meta as build; build.build_sdist({str(tmp_path)!r})"
    run(python, "-c", build, cwd=source)
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        assert [each.name for each in archive if each.issym() or each.islnk()] == []
    again = tmp_path / "again"
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", again, file, cwd=tmp_path)
    (second,) = again.glob("*.whl")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(second) as other:
        assert set(one.namelist()) == set(other.namelist())
        mine = [name for name in one.namelist() if name.endswith((".py", ".pyi", ".typed"))]
        assert [name for name in mine if one.read(name) != other.read(name)] == []


def test_pytest_of_the_project_has_its_own_names_and_our_broker(
    python: Path, project: Path
) -> None:
    (project / "test_shop.py").write_text(TESTS)
    (project / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    out = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert "2 passed" in out


@pytest.mark.spark
def test_a_producer_and_spark_work_beside_the_project(python: Path, project: Path) -> None:
    (project / "application.py").write_text(APPLICATION)
    (project / "count.py").write_text(SPARK)
    store = project / "store"
    run(python, "application.py", store, cwd=project)
    run(python, "count.py", store, cwd=project)
    run(python, "-m", "rockhopper.pipeline", "audit", store, cwd=project)


def test_the_zip_for_spark_has_the_same_bytes_from_checkout_and_wheel(
    python: Path, tmp_path: Path
) -> None:
    package = ("-m", "rockhopper.pipeline", "package", "--output")
    run(sys.executable, *package, tmp_path / "checkout.zip", cwd=ROOT)
    run(python, *package, tmp_path / "wheel.zip", cwd=tmp_path)
    assert (tmp_path / "checkout.zip").read_bytes() == (tmp_path / "wheel.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "wheel.zip") as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"rockhopper", *BUNDLED}
