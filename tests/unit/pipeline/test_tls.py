"""TLS as options of Spark name it."""

from pathlib import Path

import pytest

from rockhopper.client.network.tls import TlsOptions
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options
from rockhopper.pipeline.tls import TLS_OPTIONS, options_here, read_tls


def read(**given: str) -> TlsOptions | bool:
    return read_tls(Options("rocketmq", given, TLS_OPTIONS))


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
    assert options_here() == {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCKHOPPER_TLS_CA", "ca.pem")
    assert read() == TlsOptions("ca.pem")
    assert read(**options_here()) == TlsOptions(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("ROCKHOPPER_TLS", "perhaps")
    for ask in (read, options_here):
        with pytest.raises(PipelineError, match="ROCKHOPPER_TLS"):
            ask()
