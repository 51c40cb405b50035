"""Settings for all suites: generated tests run the same examples everywhere, unless asked not to.

``--hypothesis-profile=thorough`` runs more of the same, as CI does; ``explore`` looks for new ones.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from unittest import mock

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from rockhopper.broker import Broker
from rockhopper.client import Admin, Producer
from tests.support import shares
from tests.support.command_line import CommandLine
from tests.support.wire import WireClient

# These machines are shared: how long an example takes says nothing.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _untimed, derandomize=True, max_examples=10)
settings.register_profile("thorough", _untimed, derandomize=True, max_examples=100)
settings.register_profile("explore", _untimed, max_examples=1000)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that divide a run among processes."""
    shares.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Start the other shares."""
    if config.option.shares > 1:
        config.pluginmanager.register(shares.Share(config))


# Their tests take a minute each and share no broker.
_OF_THEIR_OWN = ("tests/interop/test_stores.py", "tests/interop/test_timers.py")


class _Modules(LoadScopeScheduling):  # type: ignore[misc]
    """A worker of xdist takes whole groups of modules, which share what they start."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return nodeid if path in _OF_THEIR_OWN else shares.group(path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Say who runs what, where there are several workers."""
    return _Modules(config, log)


# A file system in memory: most of what tests wait for on a disk is renames that write through.
_IN_MEMORY = "/dev/shm"
if (
    "TMPDIR" not in os.environ
    and os.path.isdir(_IN_MEMORY)
    and shutil.disk_usage(_IN_MEMORY).free >= 2 << 30
):
    os.environ["TMPDIR"] = tempfile.tempdir = _IN_MEMORY

# What a shell starts in the background ignores Ctrl-C, and nohup hangups; the programs that tests
# start would as well. They do not inherit handlers.
for ignored, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, lambda *_: None),
):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests outlive every collection of garbage, which need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


_FSYNC, _FDATASYNC = os.fsync, os.fdatasync


@pytest.fixture(scope="session", autouse=True)
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """A started broker syncs 22 times, and no test cuts the power: those that seem to replace this.

    Daemons in processes of their own sync as ever, and so do tests of the store (``real_syncs``).
    """
    with mock.patch.object(os, "fsync", os.fstat), mock.patch.object(os, "fdatasync", os.fstat):
        yield


@pytest.fixture(scope="module")
def real_syncs() -> Iterator[None]:
    """What is tested syncs for real: a descriptor that is closed, or a file system, may refuse."""
    with mock.patch.object(os, "fsync", _FSYNC), mock.patch.object(os, "fdatasync", _FDATASYNC):
        yield


@pytest.fixture(scope="session", autouse=True)
def _processes_compile_little() -> Iterator[None]:
    """A process that is told to write no bytecode files would compile all of ours anew.

    Spark's Java compiles quickly rather than well: a quarter of a small job's CPU time.
    """
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _logs_can_be_captured() -> None:
    """A broker that finds logging set up leaves it alone; loggers that are cached stay so."""
    structlog.configure(cache_logger_on_first_use=False)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail a test that has set up logging; a hook costs less than a fixture of every test."""
    is_theirs = structlog.get_config()["cache_logger_on_first_use"]
    assert not is_theirs, "the test has set up logging for all that follow it"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.nameserver) as producer:
        yield producer


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with Admin(broker.nameserver) as admin:
        yield admin


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[WireClient]:
    async with WireClient(broker.address) as client:
        yield client


@pytest.fixture
def shell(broker: Broker) -> CommandLine:
    return CommandLine(broker.nameserver)
