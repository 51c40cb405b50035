"""TLS and users as options of Spark name them."""

import pickle
import socket
from pathlib import Path

import pytest

from rockhopper.client.network.credentials import CredentialsFile
from rockhopper.client.network.tls import TlsOptions
from rockhopper.pipeline.access import (
    ACCESS_OPTIONS,
    Access,
    get_access,
    list_access_options,
    read_access,
    use_access,
)
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options


def read(**given: str) -> TlsOptions | bool:
    return read_access(Options("rocketmq", given, ACCESS_OPTIONS)).tls


def read_credentials(**given: str) -> CredentialsFile | None:
    return read_access(Options("rocketmq", given, ACCESS_OPTIONS)).credentials


def test_options_name_files() -> None:
    assert read(tls="true") == TlsOptions()
    assert read(tlsCa="/ca.pem") == TlsOptions("/ca.pem")
    expected = TlsOptions("/ca.pem", "/c.pem", "/k.pem", verify=False)
    assert read(tlsca="/ca.pem", tlsCert="/c.pem", tlsKey="/k.pem", tlsVerify="no") == expected
    assert read(useTLS="true") == TlsOptions()
    assert read(tls="false", tlsCa="/ca.pem") is False


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(PipelineError, match="correct tls"):
        read(tls="true", tlsKey="/k.pem")
    with pytest.raises(PipelineError, match="true or false"):
        read(tls="perhaps")


def test_without_options_the_environment_decides_for_the_workers_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert read() is False
    assert list_access_options() == {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKHOPPER_TLS_CA", "ca.pem")
    assert read() == TlsOptions("ca.pem")
    assert read(**list_access_options()) == TlsOptions(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("ROCKHOPPER_TLS", "perhaps")
    for ask in (read, list_access_options):
        with pytest.raises(PipelineError, match="ROCKHOPPER_TLS"):
            ask()


def test_credentials_are_a_files_and_their_path_alone_travels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "credentials"
    path.write_text("accessKey: al\nsecretKey: hidden\n")
    path.chmod(0o600)
    assert read_credentials() is None
    found = read_credentials(credentialsFile=str(path))
    assert found == CredentialsFile(str(path))
    assert b"hidden" not in pickle.dumps(found)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKHOPPER_CREDENTIALS_FILE", "credentials")
    assert list_access_options() == {"credentialsFile": str(path)}
    assert read_credentials() == found


def test_a_file_that_cannot_be_used_is_refused_on_the_driver(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"gone cannot be read .*on the driver"):
        read_credentials(credentialsFile=str(tmp_path / "gone"))


def test_a_job_goes_before_the_environment_and_only_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKHOPPER_TLS_CA", "other.pem")
    outside = get_access()
    file = CredentialsFile(str(tmp_path / "al"))
    with use_access(TlsOptions("ca.pem"), "al"):
        assert get_access() == Access(TlsOptions("ca.pem"), file)
        assert read() == TlsOptions("ca.pem")
        assert read_credentials() == file
        assert list_access_options()["tlsCa"] == str(tmp_path / "ca.pem")
        assert list_access_options()["credentialsFile"] == file.path
        with use_access(None, None):
            assert get_access().credentials == file
    with use_access(False, None):
        assert get_access().tls is False
    assert get_access() == outside


def test_a_file_that_is_not_here_is_named_with_the_host(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for access in (Access(TlsOptions(gone)), Access(credentials=CredentialsFile(gone))):
        with pytest.raises(PipelineError, match=f"{gone} cannot be read") as raised:
            access.check()
        assert f"on the host {socket.gethostname()}" in str(raised.value)
    Access().check()
