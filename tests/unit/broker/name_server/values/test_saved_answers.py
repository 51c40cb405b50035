"""Answers that wait for a save: few saves for many changes, none for nothing, and bounded."""

import asyncio
import errno

import pytest

from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.name_server.values import saved_answers
from rockhopper.broker.name_server.values.kv_config import KeyValueTable
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.name_server import NameServer
from tests.support.noting_writer import NotingWriter
from tests.support.peers import Peer


async def test_many_values_cost_few_saves_and_are_answered_when_they_are_saved(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[int] = []
    real = server.values._write

    def write() -> None:
        saves.append(len(server.values.namespace("N")))
        real()

    monkeypatch.setattr(server.values, "_write", write)
    server.values.start_saving()
    peer = Peer()
    for number in range(5000):
        ext = {"namespace": "N", "key": f"k{number}", "value": "v"}
        request = Command(RequestCode.PUT_KV_CONFIG, number, ext=ext)
        assert server.dispatcher.dispatch(peer.connection, request) == b""
    assert saves == []
    most_in_a_turn = before = 0
    while before < 5000:
        await asyncio.sleep(0)
        most_in_a_turn = max(most_in_a_turn, len(peer.written) - before)
        before = len(peer.written)
    assert most_in_a_turn <= 200
    answers = FrameDecoder().feed(b"".join(peer.written))
    found = [decode_header(kind, header) for kind, header, _ in answers]
    assert [(answer.opaque, answer.code) for answer in found] == [(n, 0) for n in range(5000)]
    assert len(saves) <= 2
    saved = KeyValueTable(server.values.path)
    saved.load()
    assert len(saved.namespace("N")) == 5000


async def test_a_value_that_cannot_be_saved_is_not_acknowledged(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(server.values, "_write", write)
    server.values.start_saving()
    where = {"namespace": "N", "key": "k", "value": "v"}
    answer = await server.ask_long(RequestCode.PUT_KV_CONFIG, where, b"")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_changes_that_wait_for_the_disk_are_bounded(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_answers, "WAITING_MAX", 2)
    server.values.start_saving()
    peer = Peer()
    where = {"namespace": "N", "key": "k", "value": "v"}
    for number in range(2):
        request = Command(RequestCode.PUT_KV_CONFIG, number, ext=where)
        assert server.dispatcher.dispatch(peer.connection, request) == b""
    assert server.ask(RequestCode.PUT_KV_CONFIG, where).code == ResponseCode.SYSTEM_BUSY
    await server.values.saved()


async def test_a_value_that_replicas_do_not_confirm_is_not_acknowledged(
    server: NameServer,
) -> None:
    channels, writer = StateChannels(), NotingWriter()
    channels.writer, writer.failure = writer, NotReplicatedError("not in time")
    server.values.channel = channels.table_channel(server.values, Channel.CONFIRMED)
    server.values.start_saving()
    where = {"namespace": "N", "key": "k", "value": "v"}
    answer = await server.ask_long(RequestCode.PUT_KV_CONFIG, where, b"")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not in time" in (answer.remark or "")
