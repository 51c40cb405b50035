"""The real daemon: what it says when it cannot start, and what it keeps when it is killed."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from rockhopper.broker.cli import main
from rockhopper.broker.observing import log
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.budget import rounds
from tests.support.daemon import Daemon
from tests.support.direct import ask, pull, pull_all, pull_fields, send, send_fields
from tests.support.hang import HANG_S
from tests.support.raw_peer import RawPeer, request

FREE = ("--listen-port", "0", "--namesrv-port", "0", "--http-port", "0")


def complaint(text: str) -> str:
    """The one line that is no log entry; there is no traceback."""
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, text
    return lines[0]


@pytest.mark.costly
async def test_a_second_daemon_on_the_store_says_what_to_do(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as running:
        code, text = await Daemon(tmp_path).fail(*FREE)
        assert code == 1
        line = complaint(text)
        assert str(tmp_path) in line
        assert "stop that broker" in line
        assert (await send(running.address, "orders", b"hello")).code == ResponseCode.SUCCESS


@pytest.mark.costly
@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--listen-port", "listenPort"),
        ("--namesrv-port", "namesrvPort"),
        ("--http-port", "httpPort"),
    ],
)
async def test_a_port_in_use_says_which_setting_to_change(
    tmp_path: Path, option: str, key: str
) -> None:
    listener = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    async with listener:
        port = str(listener.sockets[0].getsockname()[1])
        ports = dict(zip(FREE[::2], FREE[1::2], strict=True)) | {option: port}
        code, text = await Daemon(tmp_path).fail(*(part for pair in ports.items() for part in pair))
    assert code == 1
    line = complaint(text)
    assert key in line
    assert port in line


async def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    code, text = await Daemon(path).fail(*FREE)
    assert code == 2
    assert f"storePathRootDir={path}" in complaint(text)
    assert path.read_text() == "not a directory"


@pytest.mark.skipif(os.getuid() == 0 and not Path("/proc/1").exists(), reason="needs /proc")
async def test_a_store_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    # /proc takes no directories from anybody, not even from root.
    path = Path("/proc/rockhopper-store") if os.getuid() == 0 else tmp_path / "closed" / "store"
    if os.getuid() != 0:
        path.parent.mkdir(mode=0o500)
    code, text = await Daemon(path).fail(*FREE)
    assert code == 2
    assert f"storePathRootDir={path}" in complaint(text)


SENSELESS = {
    "no number": ("listenPort=ten", "listenPort"),
    "out of range": ("listenPort=70000", "listenPort"),
    "negative size": ("mappedFileSizeCommitLog=-1", "mappedFileSizeCommitLog"),
    "unknown choice": ("flushDiskType=SOMETIMES", "SYNC_FLUSH"),
    "no truth value": ("traceOn=perhaps", "traceOn"),
    "not KEY=VALUE": ("traceOn", "KEY=VALUE"),
}


@pytest.mark.parametrize(("setting", "word"), SENSELESS.values(), ids=SENSELESS.keys())
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, word: str
) -> None:
    # They are refused before a process would differ from this one, but for its logging.
    monkeypatch.setattr(log, "configure", lambda _level: None)
    result = CliRunner().invoke(main, ["--store", str(tmp_path / "store"), "--set", setting])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert word in result.stderr.splitlines()[-1]
    assert not (tmp_path / "store").exists()


async def test_an_unknown_setting_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    async with Daemon(tmp_path, "--set", "flushDiskTyp=SYNC_FLUSH") as daemon:
        warnings = [line["event"] for line in daemon.lines if line["level"] == "warning"]
        assert warnings == [
            "command line: setting flushDiskTyp is unknown and has no effect; did you "
            "mean flushDiskType?"
        ]
        assert await daemon.stop() == 0


async def test_printed_settings_come_with_what_is_wrong_with_them(tmp_path: Path) -> None:
    code, text = await Daemon(tmp_path, "--set", "flushDiskTyp=SYNC_FLUSH").fail("--print-config")
    assert code == 0
    assert complaint(text) == (
        "rockhopper-broker: command line: setting flushDiskTyp is unknown and has no effect; did "
        "you mean flushDiskType?"
    )


@pytest.mark.parametrize("strict", [(), ("--strict",)])
async def test_every_mistake_is_a_line_and_unknown_settings_are_one_beside_them(
    tmp_path: Path, strict: tuple[str, ...]
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPrt=1\nhttpPort=x\n")
    code, text = await Daemon(tmp_path, "-c", str(conf), *strict).fail("--print-config")
    assert code == 2
    assert [line.removeprefix(f"rockhopper-broker: {conf}:")[:3] for line in text.splitlines()] == [
        "1: ",
        "2: ",
    ]


def test_a_disk_that_fails_where_nobody_expects_it_is_logged_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rockhopper.broker.cli.serve", fail)
    monkeypatch.setattr("rockhopper.broker.cli.logging.configure", lambda *_, **__: None)
    with capture_logs() as lines:
        ended = CliRunner().invoke(main, [*FREE, "--store", str(tmp_path)])
    assert ended.exit_code == 1
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["exc_info"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_it_stops_in_good_order_when_it_is_told_to_or_its_terminal_closes(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with Daemon(tmp_path) as daemon:
        assert (tmp_path / "abort").exists()
        assert (await send(daemon.address, "orders", b"hello")).code == ResponseCode.SUCCESS
        assert await daemon.stop(number) == 0
    assert not (tmp_path / "abort").exists()
    assert daemon.lines[-1]["event"] == "stopped"
    assert daemon.lines[-1]["log_end"] > len(b"hello")


async def test_systemd_is_told_that_it_serves_and_that_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(HANG_S)
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.getsockname())
        async with Daemon(tmp_path / "store") as daemon:
            assert (
                f"broker {daemon.address},"
                in (await asyncio.to_thread(systemd.recv, 4096)).decode()
            )
            await daemon.stop()
            assert (await asyncio.to_thread(systemd.recv, 4096)).startswith(b"STOPPING=1")


async def first_closed(readers: Iterable[asyncio.StreamReader]) -> None:
    ends = [asyncio.ensure_future(reader.read()) for reader in readers]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    await asyncio.gather(*ends, return_exceptions=True)


async def test_more_clients_than_descriptors_leave_the_broker_serving(tmp_path: Path) -> None:
    async with Daemon(tmp_path, open_files=96) as daemon:
        host, _, port = daemon.address.rpartition(":")
        async with RawPeer(daemon.address) as early:
            assert (await early.ask(10, send_fields("orders"), b"first")).code == 0
            streams = [await asyncio.open_connection(host, int(port)) for _ in range(150)]
            async with asyncio.timeout(HANG_S):
                # A daemon that is behind takes them in one by one, between other peers' requests.
                await first_closed(reader for reader, _ in streams)
            for number in range(20):
                body = b"%d" % number
                assert (await early.ask(10, send_fields(f"t{number}"), body)).code == 0
            for _, writer in streams:
                writer.close()
            assert (await early.ask(10, send_fields("orders"), b"last")).code == 0
        for _ in range(1000):
            try:
                found = await pull(daemon.address, "orders")
                break
            except (EOFError, ConnectionError):
                await asyncio.sleep(0)  # the closed connections are still being counted out
        assert [message.body for message in found] == [b"first", b"last"]
        assert await daemon.stop() == 0
    refusals = [line for line in daemon.lines if "connections refused" in line["event"]]
    assert len(refusals) == 1
    assert [line for line in daemon.lines if line["level"] == "critical"] == []


@pytest.mark.slow
async def test_more_queues_than_descriptors_are_written_read_and_recovered(tmp_path: Path) -> None:
    queues = [(f"t{number}", queue_id) for number in range(50) for queue_id in range(4)]
    for round_number in range(2):
        async with Daemon(tmp_path, open_files=128) as daemon:
            async with RawPeer(daemon.address) as peer:
                for number in range(2):
                    body = b"%d-%d" % (round_number, number)
                    for topic, queue_id in queues:
                        peer.send(request(10, send_fields(topic, queue_id), body))
                    codes = {answer.code for answer in await peer.answers(len(queues))}
                    assert codes == {ResponseCode.SUCCESS}
                for topic, queue_id in queues:
                    peer.send(request(11, pull_fields(topic, 0, queue_id)))
                for answer in await peer.answers(len(queues)):
                    assert len(decode_messages(answer.body)) == 2 + 2 * round_number
            if round_number == 0:
                await daemon.kill()
            else:
                assert await daemon.stop() == 0
        assert [line for line in daemon.lines if line["level"] in ("error", "critical")] == []


async def until_killed(daemon: Daemon, acknowledged: dict[int, bytes], kill_after: int) -> None:
    """Send on two connections, note what is acknowledged, and kill the daemon in the middle."""
    first = len(acknowledged)

    async def produce(name: int) -> None:
        async with RawPeer(daemon.address) as peer:
            opaque = 0
            sent: dict[int, bytes] = {}
            try:
                while True:
                    for _ in range(32):
                        sent[opaque] = b"%d-%d-%d" % (first, name, opaque)
                        peer.send(request(10, send_fields("orders"), sent[opaque], opaque=opaque))
                        opaque += 1
                    for answer in await peer.answers(32):
                        assert answer.code == ResponseCode.SUCCESS
                        offset = int((answer.ext or {})["queueOffset"])
                        assert offset not in acknowledged
                        acknowledged[offset] = sent[answer.opaque]
                        if len(acknowledged) - first == kill_after:
                            await daemon.kill()
            except (EOFError, ConnectionError):
                return

    await asyncio.gather(produce(1), produce(2))


async def all_messages(daemon: Daemon) -> dict[int, bytes]:
    messages = await pull_all(daemon.address, "orders")
    return {message.queue_offset: message.body for message in messages}


async def kill_again_and_again(store: Path, cycles: int, *options: str) -> None:
    """Kill a daemon under load, up to *cycles* times; nothing acknowledged may be lost."""
    acknowledged: dict[int, bytes] = {}
    for cycle in rounds(cycles):
        async with Daemon(store, *options) as daemon:
            if acknowledged:
                found = await all_messages(daemon)
                lost = {
                    offset: body
                    for offset, body in acknowledged.items()
                    if found.get(offset) != body
                }
                assert lost == {}
                assert sorted(found) == list(range(len(found)))
            assert [line for line in daemon.lines if line["level"] == "error"] == []
            await until_killed(daemon, acknowledged, 200 + 137 * (cycle % 10))
    async with Daemon(store, *options) as daemon:
        found = await all_messages(daemon)
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert await daemon.stop() == 0


@pytest.mark.parametrize(
    "flush", [pytest.param("ASYNC_FLUSH", marks=pytest.mark.costly), "SYNC_FLUSH"]
)
async def test_a_killed_daemon_keeps_what_it_acknowledged(tmp_path: Path, flush: str) -> None:
    await kill_again_and_again(tmp_path, 2, "--set", f"flushDiskType={flush}")


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "flush", [pytest.param("ASYNC_FLUSH", marks=pytest.mark.long), "SYNC_FLUSH"]
)
async def test_a_daemon_killed_very_often_keeps_what_it_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    await kill_again_and_again(tmp_path, 60, "--set", f"flushDiskType={flush}")


async def test_a_stopped_daemon_exits_with_zero_and_keeps_everything(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon:
        await send(daemon.address, "orders", b"hello")
        assert await daemon.stop() == 0
    assert not (tmp_path / "abort").exists()
    async with Daemon(tmp_path) as daemon:
        answer = await ask(
            daemon.address, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}
        )
        assert (answer.ext or {})["offset"] == "1"
