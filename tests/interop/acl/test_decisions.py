"""Of rules that contend the same one decides as in Apache's broker, whoever asks from wherever."""

import asyncio
import socket

import pytest

from tests.interop.acl import decisions
from tests.interop.acl.asking import ALLOWED, calling
from tests.interop.acl.conftest import Pair
from tests.interop.acl.decisions import Cell
from tests.interop.conftest import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def own_address() -> str:
    """An address of this host by which others reach it; a loopback one where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.3"
        return str(probe.getsockname()[0])


async def decided(server: Server) -> dict[Cell, str]:
    async with calling(server.broker_address) as broker:
        await decisions.make_users(broker)
    return await decisions.decided(server.broker_address, own_address())


def test_each_cell_is_decided_as_by_apache(pair: Pair) -> None:
    apache, ours = (asyncio.run(decided(server)) for server in pair)
    # Stricter: of two rules for one resource in one request Apache keeps the first, we both.
    kept = {cell: (ALLOWED, "16") for cell in apache if cell[::2] == ("allow-first", "send")}
    differing = {cell: (apache[cell], ours[cell]) for cell in apache if apache[cell] != ours[cell]}
    assert differing == kept
    assert set(apache.values()) == {ALLOWED, "16"}
