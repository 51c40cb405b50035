"""A broker starts, serves, stops and starts again: what is there afterwards, and what is not."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker import Broker
from rockhopper.broker.app import TEMPORARY_SETTINGS
from rockhopper.broker.kernel.tables import json_table
from rockhopper.broker.server.remoting.startup import StartError
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.files import disk
from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.support.direct import ask, pull, pull_fields, route, send, send_fields
from tests.support.features import needs, transactions_of
from tests.support.free_ports import free_port
from tests.support.hang import HANG_S
from tests.support.imports import libraries, ours
from tests.support.popping import pop_fields
from tests.support.transactions import half_fields
from tests.support.wire import WireClient


def broker_on(root: Path, **settings: str) -> Broker:
    """A broker on a store that stays."""
    return Broker(build_config(TEMPORARY_SETTINGS | {"storePathRootDir": str(root)} | settings))


async def test_a_temporary_broker_serves_and_leaves_nothing_behind() -> None:
    async with Broker.temporary() as broker:
        root = broker.config.store.root
        assert root.is_dir()
        found = await route(broker.nameserver, "TBW102")
        assert json.loads(found.body)["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
        assert (await send(broker.address, "orders", b"hello")).code == ResponseCode.SUCCESS
        (message,) = await pull(broker.address, "orders")
        assert message.body == b"hello"
        assert message.store_host == "127.0.0.1"
        assert f":{message.store_port}" in broker.address
    assert not root.exists()
    with pytest.raises(ConnectionRefusedError):
        await route(broker.nameserver, "TBW102")


async def test_two_temporary_brokers_live_side_by_side() -> None:
    async with Broker.temporary() as one, Broker.temporary() as other:
        assert one.address != other.address
        await send(one.address, "orders", b"hello")
        assert (await route(other.nameserver, "orders")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_messages_topics_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    commit = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "commitOffset": "1"}
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"first")
        broker.tables.groups.find_or_create("billing")
        answer = await ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert answer.code == ResponseCode.SUCCESS
    async with broker_on(tmp_path) as broker:
        (message,) = await pull(broker.address, "orders")
        assert message.body == b"first"
        assert broker.tables.topics.get("orders") is not None
        assert "billing" in broker.tables.groups
        assert broker.tables.offsets.get("orders", "billing", 0) == 1
        await send(broker.address, "orders", b"second")
        assert [m.queue_offset for m in await pull(broker.address, "orders")] == [0, 1]


async def test_queues_are_taken_over_from_a_clean_stop(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"hello")
    async with broker_on(tmp_path) as broker:
        queue = broker.store.opened.queues.get("orders", 0)
        assert queue is not None
        assert queue.is_restored


async def test_a_start_behind_a_stop_names_what_has_gone_since_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"first")
        delayed = send_fields("orders") | {"properties": "DELAY\x011\x02"}
        await ask(broker.address, RequestCode.SEND_MESSAGE, delayed, b"later")
        broker.tables.offsets.commit("orders", "billing", 0, 1)
        await ask(broker.address, RequestCode.POP_MESSAGE, pop_fields(topic="orders"))
    table = tmp_path / "config/consumerOffset.json"
    for path in (table, table.with_suffix(".json.bak")):
        assert path.stat().st_size > 0
    with capture_logs() as logs:
        async with broker_on(tmp_path):
            pass
    assert [entry for entry in logs if "at the last stop" in entry["event"]] == []
    for path in (table, table.with_suffix(".json.bak")):
        path.unlink()
    with capture_logs() as logs:
        async with broker_on(tmp_path):
            pass
    (named,) = [entry for entry in logs if "at the last stop" in entry["event"]]
    assert [name.partition(":")[0] for name in named["files"]] == ["config/consumerOffset.json"]


async def test_a_new_topic_is_routable_when_its_first_send_is_answered() -> None:
    async with Broker.temporary() as broker:
        assert (await route(broker.nameserver, "orders")).code == ResponseCode.TOPIC_NOT_EXIST
        await send(broker.address, "orders", b"hello")
        queues = json.loads((await route(broker.nameserver, "orders")).body)["queueDatas"]
        assert queues[0]["writeQueueNums"] == 4


async def test_stopping_answers_pulls_that_wait() -> None:
    async with Broker.temporary() as broker:
        await send(broker.address, "orders", b"hello")
        async with WireClient(broker.address) as client:
            waiting = client.send(
                RequestCode.PULL_MESSAGE, pull_fields("orders", 1, suspend_ms=30_000)
            )
            # Requests are served in order: when this answer is here, the pull is parked.
            await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
            await broker.stop()
            answer = await waiting
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert (answer.ext or {})["nextBeginOffset"] == "1"


async def test_stopping_twice_is_stopping_once() -> None:
    broker = Broker.temporary()
    await broker.start()
    await broker.stop()
    await broker.stop()


async def test_a_lost_topics_json_is_rebuilt_from_the_queues(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"hello", queue_id=2)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    async with broker_on(tmp_path) as broker:
        orders = broker.tables.topics.get("orders")
        assert orders is not None
        assert orders.read_queue_nums == 4  # as many as it was made with
        (message,) = await pull(broker.address, "orders", queue_id=2)
        assert message.body == b"hello"


async def test_a_damaged_table_with_a_good_backup_starts(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"hello")
        await send(broker.address, "other", b"hello")
        await broker.tables.topics.saved()
    (tmp_path / "config" / "topics.json").write_bytes(b"\0" * 100)
    async with broker_on(tmp_path) as broker:
        assert broker.tables.topics.get("orders") is not None
        assert broker.tables.topics.get("other") is not None  # its queue tells


async def test_two_damaged_tables_refuse_to_start_and_change_nothing(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text("{")
    with pytest.raises(StartError, match=r"topics\.json"):
        await broker_on(tmp_path).start()
    assert {path.name: path.read_text() for path in config.iterdir()} == {
        "topics.json": "{",
        "topics.json.bak": "{",
    }


def contents(root: Path) -> dict[str, bytes]:
    """The tables and journals of a store, and what they hold."""
    kept = (root / "config", root / "rockhopper")
    files = [path for folder in kept for path in sorted(folder.rglob("*")) if path.is_file()]
    derived = ("timers", "inventory", "quarantine", "stopped-files", "stopped-queues")
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in files
        if not any(path.relative_to(root).parts[1].startswith(each) for each in derived)
    }


async def live_with_everything_open(broker: Broker) -> None:
    """Leave a transaction open, a message popped, one delayed, and offsets committed."""
    for number in range(3):
        fields = half_fields("orders", f"KEY{number}")
        await ask(broker.address, RequestCode.SEND_MESSAGE_V2, fields, b"half")
        await send(broker.address, "orders", b"%d" % number)
    broker.tables.groups.find_or_create("billing")
    broker.tables.offsets.commit("orders", "billing", 0, 1)
    delayed = send_fields("orders") | {"properties": "DELAY\x0118\x02"}
    await ask(broker.address, RequestCode.SEND_MESSAGE, delayed, b"later")
    await ask(broker.address, RequestCode.POP_MESSAGE, pop_fields(topic="orders"))


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param("rockhopper/sinks/published.json", marks=needs("sinks")),
        pytest.param("config/messageRequestMode.json", marks=needs("pop")),
    ],
)
@needs("transactions")
async def test_a_start_that_refuses_saves_nothing(tmp_path: Path, damaged: str) -> None:
    async with broker_on(tmp_path) as broker:
        await live_with_everything_open(broker)
        assert len(transactions_of(broker).halves) == 3
    # Tables that the store contradicts would be set right, and saved, by a start that goes on.
    path = tmp_path / damaged
    path.parent.mkdir(exist_ok=True)
    was = path.read_bytes() if path.exists() else None
    path.write_bytes(b"{")
    path.with_name(path.name + ".bak").write_bytes(b"{")
    (tmp_path / "config" / "topics.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(StartError):
        await broker_on(tmp_path).start()
    assert contents(tmp_path) == before
    path.with_name(path.name + ".bak").unlink()
    if was is None:
        path.unlink()
    else:
        path.write_bytes(was)
    async with broker_on(tmp_path) as broker:
        assert len(transactions_of(broker).halves) == 3
        assert broker.tables.offsets.get("orders", "billing", 0) == 1


@needs("transactions")
async def test_a_start_whose_port_is_taken_at_the_end_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_on(tmp_path) as broker:
        await live_with_everything_open(broker)
    before = contents(tmp_path)

    async def refuse(_broker: Broker) -> None:
        raise StartError("the port is taken")

    with monkeypatch.context() as patch:
        patch.setattr(Broker, "_open_ports", refuse)
        with pytest.raises(StartError):
            await broker_on(tmp_path).start()
    assert contents(tmp_path) == before
    async with broker_on(tmp_path) as broker:
        assert len(transactions_of(broker).halves) == 3


async def test_committed_offsets_never_point_beyond_the_log(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"hello")
    (tmp_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@billing":{0:99}}}'
    )
    async with broker_on(tmp_path) as broker:
        assert broker.tables.offsets.get("orders", "billing", 0) == 1


async def test_a_second_broker_on_the_store_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        with pytest.raises(StartError, match="in use"):
            await broker_on(tmp_path).start()
        await send(broker.address, "orders", b"hello")
        assert len(await pull(broker.address, "orders")) == 1


async def test_a_broker_whose_lock_is_taken_away_stops_and_saves_nothing(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as broker:
        await send(broker.address, "orders", b"first")
        await broker.tables.saved()
        (tmp_path / "lock").unlink()
        (tmp_path / "config" / "topics.json").write_text("another broker's")
        with pytest.raises(StartError, match=rf"{tmp_path} is in use by process {os.getpid()}"):
            await broker_on(tmp_path, httpPort="-1").start()
        async with asyncio.timeout(60):
            await broker.failed.wait()
        assert (await send(broker.address, "orders", b"second")).code != ResponseCode.SUCCESS
        broker.tables.topics.touch()
        broker.tables.topics.mark_changed()
    assert (tmp_path / "config" / "topics.json").read_text() == "another broker's"
    assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("key", ["listenPort", "namesrvPort", "httpPort"])
async def test_a_port_in_use_is_named_and_the_store_is_let_go(tmp_path: Path, key: str) -> None:
    listener = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(StartError, match=key) as caught:
            await broker_on(tmp_path, **{key: str(port)}).start()
        assert str(port) in str(caught.value)
        async with broker_on(tmp_path) as broker:
            assert (await send(broker.address, "orders", b"hello")).code == ResponseCode.SUCCESS


async def test_old_java_clients_are_served_two_ports_below_if_asked(tmp_path: Path) -> None:
    port = free_port(below=[2])
    vip = f"127.0.0.1:{port - 2}"
    async with broker_on(tmp_path, listenPort=str(port), vipChannelEnabled="true") as broker:
        assert broker.address == f"127.0.0.1:{port}"
        assert (await send(vip, "orders", b"hello")).code == ResponseCode.SUCCESS
        assert len(await pull(broker.address, "orders")) == 1
    async with broker_on(tmp_path, listenPort=str(port)):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port - 2)


async def test_a_port_for_old_java_clients_that_is_taken_is_no_obstacle(
    tmp_path: Path,
) -> None:
    port = free_port(below=[2])
    listener = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port - 2)
    with capture_logs() as logs:
        async with (
            listener,
            broker_on(tmp_path, listenPort=str(port), vipChannelEnabled="true") as broker,
        ):
            assert (await send(broker.address, "orders", b"hello")).code == ResponseCode.SUCCESS
    assert [entry["port"] for entry in logs if entry["log_level"] == "warning"] == [port - 2]


async def test_a_store_that_cannot_be_made_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="file"):
        await broker_on(tmp_path / "file").start()


async def test_run_time_settings_show_in_routes_at_once() -> None:
    async with Broker.temporary() as broker:
        await send(broker.address, "orders", b"hello")
        answer = await ask(
            broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4\n"
        )
        assert answer.code == ResponseCode.SUCCESS
        queues = json.loads((await route(broker.nameserver, "orders")).body)["queueDatas"]
        assert queues[0]["perm"] == 4


async def test_run_time_settings_stop_plain_sends_too() -> None:
    fields = {"a": "tests", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0"}
    fields |= {"h": "0", "i": "UNIQ_KEY\x01" + "0" * 32 + "\x02"}

    async with Broker.temporary() as broker, WireClient(broker.address) as client:

        async def change(settings: bytes) -> None:
            await client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, settings)

        async def send_code() -> int:
            return (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"hello")).code

        assert [await send_code() for _ in range(2)] == [ResponseCode.SUCCESS] * 2
        await change(b"brokerPermission=4\n")
        assert await send_code() == ResponseCode.NO_PERMISSION
        await change(b"brokerPermission=6\nstartAcceptSendRequestTimeStamp=9999999999999\n")
        assert await send_code() == ResponseCode.SYSTEM_ERROR
        await change(b"startAcceptSendRequestTimeStamp=0\n")
        assert await send_code() == ResponseCode.SUCCESS


async def test_offsets_reach_the_disk_while_the_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, written = asyncio.get_running_loop(), asyncio.Event()
    real = disk.write_atomically

    def write(path: Path, data: bytes, backup: bytes | None = None) -> None:
        real(path, data, backup)
        if b"orders@billing" in data:
            loop.call_soon_threadsafe(written.set)

    monkeypatch.setattr(json_table, "write_atomically", write)
    async with broker_on(tmp_path, flushConsumerOffsetInterval="10") as broker:
        broker.tables.offsets.commit("orders", "billing", 0, 5)
        async with asyncio.timeout(HANG_S):
            await written.wait()
        assert '"orders@billing":{0:5' in (tmp_path / "config/consumerOffset.json").read_text()


STARTED = """
import asyncio, sys
import rockhopper.broker.cli
from rockhopper.broker.app import Broker

async def main():
    async with Broker.temporary():
        print(*sys.modules)

asyncio.run(main())
"""


def test_a_plain_broker_imports_what_it_uses_and_no_more() -> None:
    """More modules are a slower start, and memory: import what only some brokers use when used."""
    ran = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True)
    modules = set(ran.stdout.split())
    assert libraries(modules) == {*("aiohappyeyeballs", "click", "msgpack", "msgspec", "structlog")}
    # A folder is there if it has one of the few modules that decide whether the rest is needed.
    assert {name for name in modules if name.startswith("rockhopper.broker.replication.")} == {
        f"rockhopper.broker.replication.{name}"
        for name in (
            *("election", "election.leaving"),
            *("rocketmq", "rocketmq.slave", "rocketmq.slave.following_file"),
            *("roles", "roles.passing_on"),
        )
    }
    for part in ("client", "pipeline", "broker.gateways.grpc", "broker.tools", "broker.testing"):
        assert not any(name.startswith(f"rockhopper.{part}") for name in modules)
    others = {"difflib", "encodings.idna", "http", "importlib.metadata", "unicodedata"}
    assert not modules & (others | {"rockhopper.protocol.sql92.parser"})
    assert len(ours(modules)) <= 445
