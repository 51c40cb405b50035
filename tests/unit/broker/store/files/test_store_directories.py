"""No store is left without a broker when somebody changes how many there are."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.files.errors import OtherStoresError
from rockhopper.broker.store.files.store_directories import check_many, check_single


def make_stores(root: Path, *names: str) -> StoreConfig:
    for name in names:
        (root / name / "commitlog").mkdir(parents=True)
    return StoreConfig(root=root)


def test_a_new_directory_is_anybodys(tmp_path: Path) -> None:
    config = make_stores(tmp_path / "new")
    check_single(config)
    check_many(config, "broker-a", 2)


def test_more_brokers_than_before_are_welcome(tmp_path: Path) -> None:
    config = make_stores(tmp_path, "broker-a-0", "broker-a-1")
    check_many(config, "broker-a", 2)
    check_many(config, "broker-a", 5)


@pytest.mark.parametrize(("name", "count"), [("broker-a", 2), ("broker-b", 3)])
def test_a_store_that_nobody_would_serve_is_named(name: str, count: int, tmp_path: Path) -> None:
    config = make_stores(tmp_path, "broker-a-0", "broker-a-1", "broker-a-2")
    with pytest.raises(OtherStoresError, match=r"broker-a-2 of .*start with --brokers 3"):
        check_many(config, name, count)


def test_a_single_broker_does_not_begin_beside_the_stores_of_several(tmp_path: Path) -> None:
    config = make_stores(tmp_path, "broker-a-0", "broker-a-10")
    with pytest.raises(
        OtherStoresError, match=r"\(broker-a-0, broker-a-10\): start with --brokers 11"
    ):
        check_single(config)


def test_several_do_not_begin_above_the_store_of_one(tmp_path: Path) -> None:
    config = make_stores(tmp_path, "")
    with pytest.raises(OtherStoresError, match="a single broker: start without --brokers"):
        check_many(config, "broker-a", 2)


def test_one_log_directory_for_several_is_refused(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path, commit_log_directory=tmp_path / "log")
    with pytest.raises(OtherStoresError, match="is one directory, but there are 2"):
        check_many(config, "broker-a", 2)


def test_other_directories_and_files_do_not_count(tmp_path: Path) -> None:
    config = make_stores(tmp_path, "old", "broker-a-x", "broker-a-01")
    (tmp_path / "broker-a-3").mkdir()
    (tmp_path / "file-4").write_text("")
    check_single(config)
    check_many(config, "broker-a", 2)
