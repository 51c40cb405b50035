"""Which version runs here."""

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from rockhopper import version

METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: 1.2.3\n"


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is all of ``sys.path``, for a distribution named trial-mq."""
    monkeypatch.setattr(version, "DISTRIBUTION", "trial-mq")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing.zip"), str(tmp_path)])
    version.own_version.cache_clear()
    yield tmp_path
    version.own_version.cache_clear()


def test_it_is_the_version_that_importlib_finds() -> None:
    assert version.own_version() == metadata.version("rockhopper-mq")


def test_the_name_of_the_folder_of_metadata_is_enough(own_path: Path) -> None:
    (own_path / "trial_mq-1.2.3.dev4.dist-info").mkdir()
    (own_path / "trial_mq_more-7.dist-info").mkdir()
    assert version.own_version() == "1.2.3.dev4"


def test_other_forms_of_metadata_are_found(own_path: Path) -> None:
    (own_path / "trial_mq.egg-info").mkdir()
    (own_path / "trial_mq.egg-info/PKG-INFO").write_text(METADATA.format("trial-mq"))
    assert version.own_version() == "1.2.3"


def test_a_folder_that_was_never_installed_is_no_error(own_path: Path) -> None:
    assert version.own_version() == "unknown"


def test_it_is_looked_up_once(own_path: Path) -> None:
    (own_path / "trial_mq-1.2.3.dist-info").mkdir()
    assert version.own_version() == "1.2.3"
    (own_path / "trial_mq-1.2.3.dist-info").rmdir()
    assert version.own_version() == "1.2.3"
