"""The two programs of docs/getting-started.md, run as they stand."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from rockhopper.broker import Broker
from tests.support.hang import HANG_S

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL))


async def test_what_the_shop_sends_is_billed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in PROGRAMS.items():
        (tmp_path / name).write_text(code)
    async with Broker.temporary() as broker, asyncio.timeout(HANG_S):
        monkeypatch.setenv("NAMESRV_ADDR", broker.nameserver)
        shop = await asyncio.create_subprocess_exec(sys.executable, tmp_path / "shop.py")
        assert await shop.wait() == 0
        billing = await asyncio.create_subprocess_exec(
            sys.executable, tmp_path / "billing.py", stdout=asyncio.subprocess.PIPE
        )
        assert billing.stdout is not None
        try:
            lines = sorted([await billing.stdout.readline() for _ in range(3)])
        finally:
            billing.terminate()
            await billing.wait()
    assert lines == [b"billing order %d\n" % number for number in range(3, 6)]
