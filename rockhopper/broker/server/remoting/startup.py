"""The errors that keep a broker from starting, as one line each for the operator."""

import contextlib
import errno
import importlib.util
import os
import socket
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rockhopper.broker.server.listening.renewed_files import UnusableFileError, certificate_expiry_s
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.settings.tls_config import TlsConfig
from rockhopper.broker.store.files.descriptors import shortage_of
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.protocol.addresses import join_address
from rockhopper.sockets import find_own_address

_NO_PLACE_ERRNOS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR}


class StartError(Exception):
    """The broker cannot start; the message says what to do."""


def port_error(key: str, host: str, port: int, error: OSError) -> StartError:
    """Return the error for the port of setting *key*."""
    where = join_address(host, port)
    if error.errno == errno.EADDRINUSE:
        hint = (
            "if that is a name server, start this broker with --role broker"
            if key == "namesrvPort"
            else "another broker may be running"
        )
        return StartError(
            f"port {port} of {host} is in use ({hint}): stop the process that listens there, or "
            f"set {key} to another port (0 picks a free one)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StartError(
            f"this user may not open port {where}: set {key} to a port from 1024 upwards"
        )
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return StartError(
            f"{host} is not an address of this machine: set bindAddress to one that is, or to "
            "0.0.0.0 for all of them"
        )
    return StartError(f"port {where} cannot be opened ({error.strerror or error}): check {key}")


@contextlib.contextmanager
def store_errors_explained(root: Path) -> Iterator[None]:
    """Raise StartError for errors of the store directory *root*."""
    try:
        yield
    except (StoreError, SettingError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise store_directory_error(root, error) from error


def store_directory_error(root: Path, error: OSError) -> StartError:
    """Return the error for an unusable store directory."""
    shortage = shortage_of(error)
    if shortage is not None:
        return StartError(f"the store directory {root} cannot be opened: {shortage}")
    reason = _reason(error)
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


def _reason(error: OSError) -> str:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return "it is a file, not a directory"
    return error.strerror or str(error)


def check_grpc_extra() -> None:
    """Check that gRPC is installed. Raises StartError."""
    if importlib.util.find_spec("google") is None or not importlib.util.find_spec(
        "google.protobuf"
    ):
        raise StartError(
            "grpcPort needs the package protobuf: pip install 'rockhopper-mq[grpc]', or set "
            "grpcPort=-1"
        )


def find_expired_certificates(config: BrokerConfig, now_s: float) -> Iterator[str]:
    """Yield a sentence on each expired certificate of *config*: peers will reject it."""
    for key, path in (
        ("tlsCertPath", config.tls.certificate),
        ("tlsClientCertPath", config.tls.client_certificate),
        ("haEngineCertFile", config.replication.engine_cert_file),
    ):
        # The reader of the file reports an unreadable one.
        with contextlib.suppress(UnusableFileError):
            if path is not None and certificate_expiry_s(path) <= now_s:
                yield f"setting {key}={path}: this certificate has expired: renew it"


def foreseen(config: BrokerConfig, given: Collection[str]) -> Iterator[SettingError]:
    """Yield the problems that would keep a process with *config* from serving.

    *given* are the keys that were set. Whether ports are in use is not checked: that may change
    before the start.
    """
    yield from _ports(config, given)
    yield from _address(config.bind_address)
    if config.role is not Role.NAMESERVER:
        yield from _directories(config.store, given)
    certificate, key = config.tls.certificate, config.tls.key
    if not config.tls.is_served:
        return
    if certificate is None or key is None:
        yield from _development_certificate(config)
    else:
        yield from _files(config.tls, certificate, key)


def _ports(config: BrokerConfig, given: Collection[str]) -> Iterator[SettingError]:
    ports = {"httpPort": config.http_port}
    if config.role is not Role.BROKER:
        ports["namesrvPort"] = config.namesrv_port
    if config.role is not Role.NAMESERVER:
        ports |= {"listenPort": config.listen_port, "grpcPort": config.grpc_port}
        if config.replication.serves_slaves:
            ports["haListenPort"] = config.replication.ha_port(config.listen_port)
    keys_of: dict[int, list[str]] = {}
    for key, port in ports.items():
        if port > 0:
            keys_of.setdefault(port, []).append(key)
    for port, keys in keys_of.items():
        # A default has no line to point to: report the key that was set beside it.
        first, *others = sorted(keys, key=lambda key: key in given)
        for key in others:
            yield SettingError(key, port, f"{first} has the same port: give each its own")


def _address(host: str) -> Iterator[SettingError]:
    try:
        family, kind, protocol, _, address = find_own_address(host, 0)
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except (OSError, UnicodeError):
        yield SettingError(
            "bindAddress",
            host,
            "it is not an address of this machine: name one that is, or 0.0.0.0 for all of them",
        )


def _directories(config: StoreConfig, given: Collection[str]) -> Iterator[SettingError]:
    named = {
        "storePathRootDir": config.root,
        "storePathCommitLog": config.commit_log_directory,
    }
    for key, path in named.items():
        if path is None or key not in given:
            continue
        try:
            _try_directory(path)
        except OSError as error:
            # A full or failing disk is not the setting's fault.
            if error.errno in _NO_PLACE_ERRNOS:
                yield SettingError(
                    key,
                    path,
                    f"it cannot be written to ({_reason(error)}): make it a directory that this "
                    "user may write to, or name another",
                )


def _try_directory(path: Path) -> None:
    """Raise OSError if *path* cannot be made, or no files in it; leave nothing behind."""
    if path.is_dir():
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "it is not writable")
        return
    nearest = next(each for each in (path, *path.absolute().parents) if os.path.lexists(each))
    # Permissions alone do not show it for /proc, nor for root.
    tried = nearest / f".tried-{os.getpid()}"
    tried.mkdir()
    tried.rmdir()


def _development_certificate(config: BrokerConfig) -> Iterator[SettingError]:
    from rockhopper.broker.server.listening.development_certificate import NEEDED
    from rockhopper.broker.server.listening.gates import DEVELOPMENT_DIRECTORY

    made = StoreLayout.from_config(config.store).config / DEVELOPMENT_DIRECTORY
    if importlib.util.find_spec("cryptography") is None and not made.exists():
        yield SettingError("tlsServerMode", config.tls.mode, NEEDED)


def _files(config: TlsConfig, certificate: Path, key: Path) -> Iterator[SettingError]:
    # The TLS modules are loaded only if TLS is configured.
    import ssl

    from rockhopper.broker.server.listening.tls import (
        TlsError,
        load_pair,
        load_trusted,
        see_readable,
    )

    def failing(setting: str, path: Path, load: Callable[[], None]) -> list[SettingError]:
        try:
            load()
        except TlsError as error:
            return [SettingError(setting, path, str(error))]
        return []

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    yield from (
        *failing("tlsCertPath", certificate, lambda: see_readable(certificate)),
        *failing("tlsKeyPath", key, lambda: see_readable(key)),
    ) or failing(
        "tlsCertPath",
        certificate,
        lambda: load_pair(context, certificate, key, config.key_password),
    )
    if (trusted := config.trusted) is not None:
        yield from failing("tlsTrustCertPath", trusted, lambda: load_trusted(context, trusted))
