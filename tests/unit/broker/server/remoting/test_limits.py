"""How many connections the limit on open files leaves room for."""

import resource

import pytest

from rockhopper.broker.server.remoting import limits
from rockhopper.broker.server.remoting.limits import (
    CONNECTIONS_MAX,
    DESCRIPTORS_KEPT,
    compute_mapped_files_max,
    connection_shares,
)
from rockhopper.broker.store.files.mapped_file import MAPPED_FILES_MAX


def limited_to(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, soft))


@pytest.fixture(autouse=True)
def mappings_hold_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Map as where there was no compiler."""
    monkeypatch.setattr(limits, "HOLDS_DESCRIPTOR", True)


def test_mappings_without_descriptors_leave_them_to_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HOLDS_DESCRIPTOR", False)
    limited_to(monkeypatch, 1024)
    assert compute_mapped_files_max() == MAPPED_FILES_MAX
    shares = connection_shares(with_store=True, with_name_service=True)
    assert sum(shares) == 1024 - DESCRIPTORS_KEPT


def test_some_descriptors_are_kept_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    limited_to(monkeypatch, 1024)
    assert (
        connection_shares(with_store=False, with_name_service=False)[0] == 1024 - DESCRIPTORS_KEPT
    )
    broker, names = connection_shares(with_store=True, with_name_service=True)
    assert 0 < names < broker
    assert 0 < compute_mapped_files_max() < broker
    assert broker + names + compute_mapped_files_max() <= 1024 - DESCRIPTORS_KEPT


def test_a_tiny_limit_still_lets_somebody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    limited_to(monkeypatch, 64)
    assert connection_shares(with_store=True, with_name_service=False)[0] == 24
    assert compute_mapped_files_max() == 8


@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 10**9])
def test_no_limit_is_not_taken_at_its_word(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    limited_to(monkeypatch, soft)
    assert connection_shares(with_store=True, with_name_service=False)[0] == CONNECTIONS_MAX
    # The kernel allows a process 65,530 mappings.
    assert compute_mapped_files_max() < 40_000
