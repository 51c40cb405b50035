"""Stores that are closed at the end of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import Stores


@pytest.fixture(scope="module", autouse=True)
def _syncs_for_real(real_syncs: None) -> None:
    """The store is what syncs: a test that passes without is no test of it."""


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores(tmp_path)
    yield opened
    opened.close_all()


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open()
