"""A pytest plugin: a broker for tests. pytest finds it once rockhopper-mq is installed.

    def test_orders_are_booked(rockhopper):
        run_my_service(nameserver=rockhopper.nameserver)

docs/testing.md describes the fixtures, the mark and the ini option. The broker is imported only
when a test uses one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rockhopper.broker.testing.threaded import ThreadedBroker

INI_NAME = "rockhopper_settings"
MARK = "rockhopper(settings): settings, by RocketMQ's keys, of the broker that this test gets"

Settings = Mapping[str, object]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the ini option."""
    parser.addini(
        INI_NAME,
        "settings of the brokers that the fixture `rockhopper` starts, as lines: key = value",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture(scope="session")
def _rockhopper_brokers(
    pytestconfig: pytest.Config,
) -> "Iterator[Callable[[Settings], ThreadedBroker]]":
    """Brokers by their settings, each started at its first use."""
    from rockhopper.broker.testing.threaded import ThreadedBroker

    base = _ini_settings(pytestconfig)
    brokers: dict[tuple[tuple[str, str], ...], ThreadedBroker] = {}

    def broker_with(settings: Settings) -> "ThreadedBroker":
        wanted = {**base, **settings}
        key = tuple(sorted((name, str(value)) for name, value in wanted.items()))
        if key not in brokers:
            brokers[key] = ThreadedBroker(wanted).start()
        return brokers[key]

    yield broker_with
    for broker in brokers.values():
        broker.stop()


@pytest.fixture(scope="session")
def rockhopper_broker(
    _rockhopper_brokers: "Callable[[Settings], ThreadedBroker]",
) -> "ThreadedBroker":
    """A broker that runs until the end of the session; the data of tests stays in it."""
    return _rockhopper_brokers({})


@pytest.fixture
def rockhopper(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    _rockhopper_brokers: "Callable[[Settings], ThreadedBroker]",
) -> "ThreadedBroker":
    """A broker without data: the session's, purged, or one with the settings of the test's mark.

    NAMESRV_ADDR names it while the test runs.
    """
    broker = _rockhopper_brokers(_marked_settings(request.node))
    broker.purge()
    monkeypatch.setenv("NAMESRV_ADDR", broker.nameserver)
    return broker


def _marked_settings(node: pytest.Item) -> dict[str, object]:
    """Return the settings of all marks of a test; the nearest marks win."""
    settings: dict[str, object] = {}
    for mark in reversed(list(node.iter_markers("rockhopper"))):
        given = mark.kwargs.get("settings")
        if mark.args or set(mark.kwargs) != {"settings"} or not isinstance(given, Mapping):
            raise pytest.UsageError(
                "@pytest.mark.rockhopper takes settings, a mapping: "
                '@pytest.mark.rockhopper(settings={"autoCreateTopic": "off"})'
            )
        settings |= given
    return settings


def _ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini(INI_NAME):
        key, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{INI_NAME}: the line {line!r} must look like key = value")
        settings[key.strip()] = value.strip()
    return settings
