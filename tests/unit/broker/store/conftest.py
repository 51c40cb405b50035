"""Stores that are closed at the end of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import Stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    opened = Stores(tmp_path)
    yield opened
    opened.close_all()


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    return stores.open()
