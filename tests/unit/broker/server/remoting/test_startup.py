"""What stops a broker from starting, as the one line that its operator reads."""

import errno
import importlib.util
import os
import socket
import time
from pathlib import Path

import pytest

from rockhopper.broker.server.remoting.startup import (
    find_expired_certificates,
    foreseen,
    port_error,
    store_directory_error,
)
from rockhopper.broker.settings.config_file import build_config, load_config
from rockhopper.broker.settings.setting_fields import SettingError
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(errno.EADDRINUSE, "x"),
            r"in use \(another broker may be running\).*set listenPort",
        ),
        (OSError(errno.EACCES, "x"), "may not open port h:80: set listenPort to a port from 1024"),
        (OSError(errno.EPERM, "x"), "from 1024 upwards"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "h is not an address of this machine: set bindAddress"),
        (socket.gaierror(-2, "x"), "h is not an address of this machine"),
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
        (FileExistsError(errno.EEXIST, "x"), "it is a file, not a directory"),
        (NotADirectoryError(errno.ENOTDIR, "x", "/s"), "/s: it is a file, not a directory"),
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


def found(path: Path, text: str) -> list[str]:
    """The line of each mistake, and its key."""
    path.write_text(text)
    try:
        load_config(path, foresee=foreseen)
    except SettingError as error:
        lines = str(error).splitlines()
        return [line.removeprefix(f"{path}:").partition("=")[0] for line in lines]
    return []


SAME = ((2, "grpcPort"), (3, "namesrvPort"))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        (
            "grpcPort=5\nhttpPort=5\nlistenPort=5\n",
            ["1: setting grpcPort", "3: setting listenPort"],
        ),
        ("httpPort=10911\n", ["1: setting httpPort"]),
        ("haMode=classic\nbrokerRole=ASYNC_MASTER\nhttpPort=10912\n", ["3: setting httpPort"]),
        ("role=broker\nhttpPort=9876\n", []),
        ("role=nameserver\nhttpPort=10911\n", []),
        ("grpcPort=-1\nhttpPort=-1\n", []),
        ("listenPort=0\nhttpPort=0\n", []),
    ],
)
def test_ports_that_are_the_same(conf: Path, text: str, mistakes: list[str]) -> None:
    assert found(conf, text) == mistakes


@pytest.mark.parametrize(
    ("host", "is_found"),
    [("999.1.1.1", True), ("a..b", True), ("192.0.2.1", True), ("0.0.0.0", False)],
)
def test_an_address_that_this_machine_does_not_have(conf: Path, host: str, is_found: bool) -> None:
    mistakes = found(conf, f"\nbindAddress={host}\n")
    assert mistakes == ["2: setting bindAddress"] * is_found


@pytest.mark.parametrize("key", ["storePathRootDir", "storePathCommitLog"])
def test_a_directory_that_cannot_be_used(conf: Path, tmp_path: Path, key: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    # Nobody, not even root, makes a directory there.
    for bad in ("/proc/x", tmp_path / "file", tmp_path / "file" / "x", tmp_path / "dangling"):
        assert found(conf, f"\n{key}={bad}\n") == [f"2: setting {key}"], bad
        assert found(conf, f"role=nameserver\n{key}={bad}\n") == []
    before = sorted(tmp_path.iterdir())
    for good in (tmp_path, tmp_path / "new" / "deeper"):
        assert found(conf, f"{key}={good}\n") == []
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_that_may_not_be_written_to(
    conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    assert found(conf, f"storePathRootDir={tmp_path}\n") == ["1: setting storePathRootDir"]


def test_a_disk_that_is_full_is_no_mistake(
    conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "mkdir", fail)
    assert found(conf, f"storePathRootDir={tmp_path / 'new'}\n") == []


def test_a_certificate_that_cannot_be_read(conf: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    text = f"tlsCertPath={nowhere}\ntlsKeyPath={nowhere}\n"
    assert found(conf, text) == ["1: setting tlsCertPath", "2: setting tlsKeyPath"]
    trusting = f"{text}tlsTrustCertPath={nowhere}\n"
    assert found(conf, trusting)[2:] == ["3: setting tlsTrustCertPath"]
    assert found(conf, f"tlsServerMode=disabled\n{trusting}") == []


def test_a_certificate_and_a_key_that_are_no_pair(conf: Path, tmp_path: Path) -> None:
    one, other = (Authority(tmp_path).issue(name) for name in ("one", "other"))
    text = f"tlsKeyPath={one.key}\ntlsCertPath="
    assert found(conf, f"{text}{one.certificate}\n") == []
    assert found(conf, f"{text}{other.certificate}\n") == ["2: setting tlsCertPath"]


def test_a_mode_that_needs_a_certificate_which_cannot_be_made(
    conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"storePathRootDir={tmp_path}\ntlsServerMode=enforcing\n"
    assert found(conf, text) == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert found(conf, text) == ["2: setting tlsServerMode"]
    (tmp_path / "config" / "tls").mkdir(parents=True)
    assert found(conf, text) == []


def test_a_certificate_that_has_ended_is_warned_about(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    over, valid = authority.issue("over", days=-1), authority.issue("valid")
    config = build_config(
        {"tlsCertPath": str(over.certificate), "tlsKeyPath": str(over.key)}
        | {"tlsClientCertPath": str(valid.certificate), "tlsClientKeyPath": str(valid.key)}
        | {"haEngine": "etcds://e", "haReplicaId": "1"}
        | {"haEngineCertFile": str(over.certificate), "haEngineKeyFile": str(over.key)}
    )
    warnings = list(find_expired_certificates(config, time.time()))
    assert [line.split("=")[0] for line in warnings] == [
        "setting tlsCertPath",
        "setting haEngineCertFile",
    ]
    over.certificate.unlink()
    assert list(find_expired_certificates(config, time.time())) == []
