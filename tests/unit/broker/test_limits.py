"""How many connections the limit on open files leaves room for."""

import resource

import pytest

from broker.limits import CONNECTIONS_MAX, DESCRIPTORS_KEPT, connection_shares


def limited_to(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, soft))


def test_some_descriptors_are_kept_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    limited_to(monkeypatch, 1024)
    assert connection_shares(with_name_service=False) == (1024 - DESCRIPTORS_KEPT, 0)
    broker, names = connection_shares(with_name_service=True)
    assert 0 < names < broker
    assert broker + names <= 1024 - DESCRIPTORS_KEPT


def test_a_tiny_limit_still_lets_somebody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    limited_to(monkeypatch, 64)
    assert connection_shares(with_name_service=False)[0] == 32


@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 10**9])
def test_no_limit_is_not_taken_at_its_word(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    limited_to(monkeypatch, soft)
    assert connection_shares(with_name_service=False)[0] <= CONNECTIONS_MAX
