"""The directories below storePathRootDir: those of one broker, or of several.

    <root>/commitlog …                  the store of a single broker
    <root>/<brokerName>-<number>/…      the stores of several under one parent (--brokers)

A start that changes from one layout to the other, or to fewer brokers, is refused: no broker would
serve the messages in the remaining directories, and they would look lost.
"""

import re
from pathlib import Path

from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.store.files.errors import OtherStoresError
from rockhopper.protocol.store.store_paths import COMMIT_LOG_DIRECTORY

_NAME = re.compile(r"(.+)-(0|[1-9][0-9]*)")


def name_of(broker_name: str, number: int) -> str:
    """Return the name of one of several brokers."""
    return f"{broker_name}-{number}"


def directory_of(root: Path, broker_name: str, number: int) -> Path:
    """Return the store directory of one of several brokers."""
    return root / name_of(broker_name, number)


def check_single(config: StoreConfig) -> None:
    """Check that there are no stores of several brokers. Raises OtherStoresError, OSError."""
    found = _stores_below(config.root)
    if found:
        raise OtherStoresError(
            f"{config.root} contains the stores of several brokers ({_format_list(found)}): start "
            f"with --brokers {_count_for(found)}, or choose another directory with --store"
        )


def check_many(config: StoreConfig, broker_name: str, count: int) -> None:
    """Check that all stores found belong to these brokers. Raises OtherStoresError, OSError."""
    root = config.root
    if config.commit_log_directory is not None:
        raise OtherStoresError(
            f"storePathCommitLog={config.commit_log_directory} is one directory, but there are "
            f"{count} brokers: remove it, so that each keeps its log in its own directory below "
            f"{root}"
        )
    if (root / COMMIT_LOG_DIRECTORY).exists():
        raise OtherStoresError(
            f"{root} contains the store of a single broker: start without --brokers, or make it "
            f"the store of {name_of(broker_name, 0)} (move everything in {root} to "
            f"{directory_of(root, broker_name, 0)}), or choose another directory with --store"
        )
    expected = {name_of(broker_name, number) for number in range(count)}
    left = [path for path in _stores_below(root) if path.name not in expected]
    if left:
        raise OtherStoresError(
            f"no broker would serve the messages in {_format_list(left)} of {root}: start with "
            f"--brokers {_count_for(left)} and the same brokerName, or move those directories "
            "away once their messages are no longer needed"
        )


def _stores_below(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(
        path
        for path in root.iterdir()
        if _NAME.fullmatch(path.name) and (path / COMMIT_LOG_DIRECTORY).is_dir()
    )


def _count_for(stores: list[Path]) -> int:
    return max(int(path.name.rpartition("-")[2]) for path in stores) + 1


def _format_list(stores: list[Path]) -> str:
    return ", ".join(path.name for path in stores)
