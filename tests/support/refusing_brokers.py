"""Brokers that refuse requests of the pipeline."""

from collections.abc import Callable
from typing import Any

import pytest

from rockhopper.client.errors import RequestRefusedError
from rockhopper.pipeline.remote import Remote
from rockhopper.protocol.codes import RequestCode


def fail(
    monkeypatch: pytest.MonkeyPatch, refused: RequestCode, error_of: Callable[[str], Exception]
) -> None:
    """Make requests of one code fail with *error_of* the broker's name."""
    real = Remote._request

    async def ask(remote: Any, name: str, code: RequestCode, *rest: Any) -> Any:
        if code == refused:
            raise error_of(name)
        return await real(remote, name, code, *rest)

    monkeypatch.setattr(Remote, "_request", ask)


def refuse(monkeypatch: pytest.MonkeyPatch, code: RequestCode) -> None:
    """Make brokers refuse requests of one of our codes, like Apache's brokers."""
    fail(
        monkeypatch,
        code,
        lambda _: RequestRefusedError(code, 3, "not supported", "10.0.0.1:10911"),
    )
