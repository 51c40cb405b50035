"""What can stop a broker from starting, as the one line that its operator reads."""

import contextlib
import errno
import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path

from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.store.files.descriptors import shortage_of
from rockhopper.broker.store.files.errors import StoreError


class StartError(Exception):
    """The broker cannot start; str() is a sentence that says what to do."""


def port_error(key: str, host: str, port: int, error: OSError) -> StartError:
    """Why the port of setting *key* cannot be opened."""
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        hint = (
            "if that is a name service, start this broker with --role broker"
            if key == "namesrvPort"
            else "another broker may be running"
        )
        return StartError(
            f"port {port} of {host} is in use ({hint}): stop what listens there, or set {key} to "
            "another port (0 picks a free one)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StartError(
            f"this user may not open port {where}: set {key} to a port from 1024 upwards"
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return StartError(
            f"{host} is no address of this machine: set bindAddress to one that is, or to 0.0.0.0 "
            "for all of them"
        )
    return StartError(f"port {where} cannot be opened ({error.strerror or error}): check {key}")


@contextlib.contextmanager
def store_errors_explained(root: Path) -> Iterator[None]:
    """Raise StartError for what goes wrong with the store directory *root*."""
    try:
        yield
    except (StoreError, SettingError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise store_directory_error(root, error) from error


def store_directory_error(root: Path, error: OSError) -> StartError:
    """Why the store directory cannot be used."""
    shortage = shortage_of(error)
    if shortage is not None:
        return StartError(f"the store directory {root} cannot be opened: {shortage}")
    reason = error.strerror or str(error)
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        reason = "there is a file, not a directory"
    if error.filename is not None:
        reason = f"{error.filename}: {reason}"
    if error.errno == errno.ENOSPC:
        return StartError(
            f"the disk of the store in {root} is full ({reason}): free some space, or set "
            "mappedFileSizeCommitLog to a smaller size for a new store"
        )
    return StartError(
        f"the store directory {root} cannot be used ({reason}): make it writable for this user, "
        "or choose another with --store"
    )


def check_grpc_extra() -> None:
    """Whether gRPC can be spoken here. Raises StartError."""
    if importlib.util.find_spec("google") is None or not importlib.util.find_spec(
        "google.protobuf"
    ):
        raise StartError(
            "grpcPort needs the package protobuf: pip install 'rockhopper-mq[grpc]', or set "
            "grpcPort=-1"
        )
