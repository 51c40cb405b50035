"""What a system lacks is said in sentences."""

import os
import sys

import pytest

from rockhopper.broker.server.loop import systems


def test_linux_with_everything_lacks_nothing() -> None:
    assert systems.refusal() is None
    assert systems.shortcomings() == []


def test_a_system_like_macos_serves_and_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "posix_fallocate")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert systems.refusal() is None
    system, allocation, loop = systems.shortcomings()
    assert "is darwin, but only Linux is supported" in system
    assert "no posix_fallocate" in allocation
    assert "uvloop is not installed" in loop


def test_a_system_like_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.delattr(os, "pread")
    reason = systems.refusal()
    assert reason is not None
    assert "lacks module fcntl, os.pread, which a store needs" in reason
