"""Apache's broker and ours with users, one of each for a module."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.interop import apache
from tests.interop.acl.asking import APACHE_SETTINGS, SETTINGS
from tests.interop.acl.requests import TOPIC
from tests.interop.conftest import launching
from tests.interop.rockhopper import RockhopperServer


class Pair(NamedTuple):
    """Both, asked the same."""

    apache: apache.ApacheServer
    ours: RockhopperServer


@pytest.fixture(scope="module")
def pair(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both, started."""
    with launching(tmp_path_factory.mktemp("acl")) as launcher:
        settings = {**APACHE_SETTINGS, **apache.SMALL_FILES}
        yield Pair(launcher.apache(settings, topics=[f"{TOPIC}:4"]), launcher.rockhopper(SETTINGS))
