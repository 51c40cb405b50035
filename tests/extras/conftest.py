"""Tests with real sockets run on the event loop of the integration tests."""

from tests.integration.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
