"""Options for TLS and credentials, the same for sources, sinks and jobs.

    tls               true: use TLS
    tlsCa             a PEM file of CAs, on the driver and on every worker; implies tls
    tlsCert           a file with the client certificate, and
    tlsKey            a file with its key; both imply tls
    tlsVerify         false: accept any certificate
    credentialsFile   a file with a user name and secret, on the driver and on every worker

The options name files; the contents of the files never enter a query plan. Without any TLS option,
the arguments of the running job decide, or else the driver's environment; the result applies to the
workers too. The same holds for credentialsFile. If the environment itself holds a user name and a
secret, each process reads its own environment.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from rockhopper.client.errors import ClientStateError
from rockhopper.client.network.credentials import CredentialsFile, find_environment_file
from rockhopper.client.network.tls import Tls, TlsOptions, choose_tls
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options

_TLS_OPTIONS = ("tls", "tlsCa", "tlsCert", "tlsKey", "tlsVerify", "useTLS")
ACCESS_OPTIONS = (*_TLS_OPTIONS, "credentialsFile")


class Access(NamedTuple):
    """The TLS options and credentials of a connection."""

    tls: TlsOptions | bool = False
    credentials: CredentialsFile | None = None
    """None: each process reads its own environment."""

    def check(self) -> None:
        """Check that this host has the files. Raises PipelineError, which names the host."""
        try:
            if isinstance(self.tls, TlsOptions):
                self.tls.context()
            if self.credentials is not None:
                self.credentials()
        except (ClientStateError, OSError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise PipelineError(
                f"{said}, on the host {socket.gethostname()}: the file must be there on the driver "
                "and on every worker"
            ) from None


_of_job: ContextVar[Access | None] = ContextVar("access of the job that runs", default=None)


def read_access(options: Options) -> Access:
    """Read the access from *options*. Raises PipelineError."""
    return Access(_read_tls(options), _read_credentials(options))


def get_access() -> Access:
    """Return the access of the running job, or else of the environment. Raises PipelineError."""
    of_job = _of_job.get()
    return _access(None, None) if of_job is None else of_job


@contextmanager
def use_access(tls: Tls, credentials: str | Path | None) -> Iterator[None]:
    """Set the access for requests of this thread inside the block; None: use the environment."""
    if tls is None and credentials is None:
        yield
        return
    token = _of_job.set(_access(tls, credentials))
    try:
        yield
    finally:
        _of_job.reset(token)


def _access(tls: Tls, credentials: str | Path | None) -> Access:
    file = CredentialsFile(os.path.abspath(credentials)) if credentials else find_environment_file()
    try:
        return Access(choose_tls(tls) or False, file)
    except ValueError as error:
        raise PipelineError(str(error)) from None


def _read_tls(options: Options) -> TlsOptions | bool:
    if not any(name in options for name in _TLS_OPTIONS):
        return get_access().tls
    try:
        ca, certificate, key = (
            options.text(name) or None for name in ("tlsCa", "tlsCert", "tlsKey")
        )
        is_wanted = options.boolean("tls", options.boolean("useTLS", bool(ca or certificate)))
        return is_wanted and TlsOptions(ca, certificate, key, options.boolean("tlsVerify", True))
    except ValueError as error:
        raise PipelineError(f"{error}: correct tls, tlsCa, tlsCert and tlsKey") from None


def _read_credentials(options: Options) -> CredentialsFile | None:
    path = options.text("credentialsFile")
    if not path:
        return get_access().credentials
    file = CredentialsFile(path)
    Access(credentials=file).check()
    return file


def list_access_options() -> dict[str, str]:
    """Return ``access_here`` as options, for a plan that another process makes.

    Raises PipelineError.
    """
    tls, credentials = get_access()
    options = {} if credentials is None else {"credentialsFile": credentials.path}
    if isinstance(tls, bool):
        return options
    named = {"tlsCa": tls.ca, "tlsCert": tls.certificate, "tlsKey": tls.key}
    options |= {name: os.path.abspath(path) for name, path in named.items() if path is not None}
    return {"tls": "true", "tlsVerify": str(tls.verify).lower(), **options}
