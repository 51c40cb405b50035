"""Tests of what a crash leaves sync for real."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _syncs_for_real(real_syncs: None) -> None:
    """A crash of the process loses nothing that was not synced; a refused sync shows here."""
