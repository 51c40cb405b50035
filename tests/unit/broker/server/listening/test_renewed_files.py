"""Files that are replaced while the broker runs."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.server.listening.renewed_files import (
    SAME_COMPLAINT_S,
    RenewedFiles,
    current,
    file_stamp,
)
from tests.support.certificates import Authority


class Secret:
    """A file, and whether this user may read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_readable = True
        self.reads = 0
        self.steady_s = 0.0
        path.write_text("old")
        self.files = RenewedFiles([path], self.read, steady_s=lambda: self.steady_s)

    def read(self) -> str:
        self.reads += 1
        if not self.is_readable:
            raise PermissionError(13, "Permission denied")
        return self.path.read_text()

    def replace(self, text: str) -> None:
        other = self.path.with_suffix(".new")
        other.write_text(text)
        other.replace(self.path)


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


def test_a_file_is_read_again_when_it_is_another(secret: Secret) -> None:
    assert secret.files.current() == "old"
    assert not secret.files.look()
    assert secret.reads == 1
    secret.replace("new")
    assert secret.files.look()
    assert secret.files.current() == "new"


def test_a_failed_read_is_tried_again_though_the_file_stays_and_is_logged_once_a_minute(
    secret: Secret,
) -> None:
    secret.files.look()
    secret.replace("new")
    secret.is_readable = False
    with capture_logs() as lines:
        for secret.steady_s in (0, SAME_COMPLAINT_S - 1, SAME_COMPLAINT_S):
            assert secret.files.current() == "old"
    assert len(lines) == 2
    assert "Permission denied" in lines[0]["reason"]
    secret.is_readable = True
    assert secret.files.current() == "new"


def test_what_could_never_be_read_is_raised_each_time(secret: Secret) -> None:
    secret.is_readable = False
    for _ in range(2):
        with pytest.raises(PermissionError):
            secret.files.current()
    secret.is_readable = True
    assert secret.files.current() == "old"


def test_a_file_that_is_replaced_while_it_is_read_is_read_once_more(secret: Secret) -> None:
    texts = iter(["one", "two"])
    files = RenewedFiles([secret.path], lambda: secret.replace(next(texts)))
    assert files.look()
    assert files.look()


def test_a_stamp_tells_a_file_of_the_same_size_and_time_from_another(secret: Secret) -> None:
    before, times = file_stamp(secret.path), secret.path.stat()
    secret.replace("new")
    os.utime(secret.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file_stamp(secret.path) != before
    before = file_stamp(secret.path)
    secret.path.chmod(0o400)
    assert file_stamp(secret.path) != before
    assert file_stamp(secret.path / "nowhere") == ()


def test_a_certificate_that_has_ended_never_replaces_a_valid_one(authority: Authority) -> None:
    pair = authority.issue(days=10)
    now = datetime.now(UTC)
    files = RenewedFiles(
        pair, lambda: object(), certificate=pair.certificate, now_s=lambda: now.timestamp()
    )
    valid, ends_s = files.current(), files.expires_at_s
    authority.issue(days=5)
    now += timedelta(days=7)
    with capture_logs() as lines:
        assert files.current() is valid
    assert "has expired" in lines[0]["reason"]
    assert files.expires_at_s == ends_s
    now += timedelta(days=7)
    assert files.current() is not valid


def test_a_value_may_be_asked_for_each_time() -> None:
    secrets: list[bytes | Callable[[], bytes]] = [b"s", lambda: b"s"]
    assert [current(each) for each in secrets] == [b"s", b"s"]
