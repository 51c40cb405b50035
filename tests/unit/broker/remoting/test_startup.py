"""What stops a broker from starting, as the one line that its operator reads."""

import errno
import socket
from pathlib import Path

import pytest

from rockhopper.broker.remoting.startup import port_error, store_directory_error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(errno.EADDRINUSE, "x"),
            r"in use \(another broker may be running\).*set listenPort",
        ),
        (OSError(errno.EACCES, "x"), "may not open port h:80: set listenPort to a port from 1024"),
        (OSError(errno.EPERM, "x"), "from 1024 upwards"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "h is no address of this machine: set bindAddress"),
        (socket.gaierror(-2, "x"), "h is no address of this machine"),
        (OSError(errno.EIO, "broken"), r"port h:80 cannot be opened \(broken\): check listenPort"),
        (OSError("odd"), r"cannot be opened \(odd\)"),
    ],
)
def test_each_reason_says_what_to_set(error: OSError, says: str) -> None:
    with pytest.raises(Exception, match=says):
        raise port_error("listenPort", "h", 80, error)


def test_a_name_service_in_the_way_is_a_reason_to_be_a_broker_only() -> None:
    error = port_error("namesrvPort", "h", 9876, OSError(errno.EADDRINUSE, "x"))
    assert "--role broker" in str(error)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            PermissionError(errno.EACCES, "denied", "/s/lock"),
            r"\(/s/lock: denied\): make it writable",
        ),
        (FileExistsError(errno.EEXIST, "x"), "there is a file, not a directory"),
        (NotADirectoryError(errno.ENOTDIR, "x", "/s"), "/s: there is a file, not a directory"),
        (OSError(errno.ENOSPC, "full"), r"the disk of the store in /s is full \(full\)"),
        (
            OSError(errno.EMFILE, "x"),
            "the store directory /s cannot be opened: too many open files",
        ),
        (OSError("odd"), r"cannot be used \(odd\)"),
    ],
)
def test_a_store_directory_that_cannot_be_used_says_why(error: OSError, says: str) -> None:
    with pytest.raises(Exception, match=says):
        raise store_directory_error(Path("/s"), error)
