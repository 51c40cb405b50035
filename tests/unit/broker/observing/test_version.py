"""Which version runs here."""

from importlib import metadata

import pytest

from rockhopper.broker.observing import version


def test_a_folder_that_was_never_installed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert version.own_version() == metadata.version("rockhopper-mq")
    monkeypatch.setattr(version, "DISTRIBUTION", "not-installed-anywhere")
    assert version.own_version.__wrapped__() == "unknown"
