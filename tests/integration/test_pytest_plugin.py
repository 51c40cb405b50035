"""The pytest plugin, as projects use it: in runs of pytest of their own."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from rockhopper.broker.testing.threaded import ThreadedBroker
from rockhopper.client import Admin, Producer
from tests.support.hang import HANG_S

pytestmark = pytest.mark.costly

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-project"


async def run_pytest(directory: Path, *options: str) -> tuple[int, str]:
    """Run the tests of a project; return the exit code and what was printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options),
        cwd=directory,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(HANG_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_the_example_project_passes_without_an_asyncio_plugin() -> None:
    code, out = await run_pytest(EXAMPLE, "-p", "no:asyncio", "-W", "error")
    assert code == 0, out
    assert "5 passed" in out


async def test_synchronous_and_asynchronous_tests_share_brokers(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n"
        'asyncio_mode = "auto"\n'
        'asyncio_default_fixture_loop_scope = "function"\n'
        'filterwarnings = ["error"]\n'
        'addopts = ["--strict-markers"]\n'
        'rockhopper_settings = ["defaultTopicQueueNums = 2"]\n'
    )
    (tmp_path / "test_them.py").write_text(
        "import pytest\n"
        "from rockhopper.client import Admin, Producer\n"
        "\n"
        "brokers = set()\n"
        "\n"
        "async def test_asynchronous(rockhopper, rockhopper_broker):\n"
        "    assert rockhopper is rockhopper_broker\n"
        "    brokers.add(rockhopper.address)\n"
        "    async with Producer() as producer, Admin() as admin:\n"
        "        assert (await producer.send('orders', b'x')).queue_offset == 0\n"
        "        assert len((await admin.route('orders')).read_queues) == 2\n"
        "\n"
        "def test_synchronous(rockhopper):\n"
        "    brokers.add(rockhopper.address)\n"
        "    names = rockhopper.call(lambda broker: list(broker.tables.topics.configs))\n"
        "    assert 'orders' not in names\n"
        "\n"
        "@pytest.mark.rockhopper(settings={'autoCreateTopic': 'off'})\n"
        "async def test_marked(rockhopper):\n"
        "    assert rockhopper.address not in brokers\n"
        "    with pytest.raises(Exception, match='topic create'):\n"
        "        async with Producer() as producer:\n"
        "            await producer.send('orders', b'x')\n"
        "\n"
        "def test_at_the_end():\n"
        "    assert len(brokers) == 1\n"
    )
    code, out = await run_pytest(tmp_path)
    assert code == 0, out
    assert "4 passed" in out


@pytest.mark.parametrize("number", [1, 2])
async def test_each_test_finds_the_broker_as_good_as_new(
    rockhopper: ThreadedBroker, number: int
) -> None:
    async with Producer() as producer:  # NAMESRV_ADDR says where
        assert (await producer.send("orders", b"%d" % number, queue=0)).queue_offset == 0
    assert rockhopper.call(lambda broker: broker.store.reading.queue_range("orders", 0)) == (0, 1)


async def test_a_project_may_have_a_package_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "__init__.py").write_text("NAME = 'mine'\n")
    (tmp_path / "test_them.py").write_text(
        "import broker\n\ndef test_it_is_mine():\n    assert broker.NAME == 'mine'\n"
    )
    code, out = await run_pytest(tmp_path)
    assert code == 0, out
    assert "1 passed" in out


async def test_runs_that_need_no_broker_do_not_load_one(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(
        "import sys\n"
        "\n"
        "def test_nothing_is_loaded():\n"
        "    assert 'rockhopper.pytest_plugin' in sys.modules\n"
        "    loaded = {'structlog', 'msgspec', 'uvloop', 'rockhopper.broker'}\n"
        "    assert not loaded & set(sys.modules)\n"
    )
    code, out = await run_pytest(tmp_path, "-p", "no:asyncio", "-p", "no:hypothesispytest")
    assert code == 0, out


async def test_a_broker_in_a_thread_serves_clients_of_any_loop() -> None:
    with ThreadedBroker({"defaultTopicQueueNums": 1}) as broker:
        async with Producer(broker.nameserver) as producer, Admin(broker.nameserver) as admin:
            await producer.send("orders", b"x")
            assert len((await admin.route("orders")).read_queues) == 1
            broker.purge()
            assert "orders" not in await admin.topics()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.purge()
    with pytest.raises(RuntimeError, match="create a new one"):
        broker.start()


def test_a_broker_in_a_thread_that_cannot_start_says_why() -> None:
    with pytest.raises(ValueError, match="setting brokerName=a b"):
        ThreadedBroker({"brokerName": "a b"}).start()
