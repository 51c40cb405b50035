"""Credentials of a client: a user and their secret.

Unless the program passes credentials, the environment decides:

    ROCKHOPPER_CREDENTIALS_FILE   a file that contains both; or
    ROCKHOPPER_ACCESS_KEY         the user, and
    ROCKHOPPER_SECRET_KEY         their secret

The file has the format of RocketMQ's conf/tools.yml, with a line for each:

    accessKey: billing
    secretKey: "…"

Quotes are optional; blank lines and lines that begin with # are ignored. The file is read for each
new connection, because brokers close the connections of a user whose secret was changed.
"""

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rockhopper.client.errors import ClientStateError
from rockhopper.protocol.signing import Credentials

log = logging.getLogger(__name__)

FILE_VARIABLE = "ROCKHOPPER_CREDENTIALS_FILE"
ACCESS_KEY_VARIABLE = "ROCKHOPPER_ACCESS_KEY"
SECRET_KEY_VARIABLE = "ROCKHOPPER_SECRET_KEY"
FILE_SIZE_BYTES_MAX = 64 << 10
_NAMES = ("accessKey", "secretKey")
_FORM = "expected two lines, accessKey: NAME and secretKey: SECRET"
_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH

_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class CredentialsFile:
    """A file with a user and their secret; calling the object reads it."""

    path: str

    @property
    def origin(self) -> str:
        """The file, as named in error messages."""
        return f"the credentials file {self.path}"

    def __call__(self) -> Credentials:
        """Read the file. Raises ClientStateError, which does not reveal the content."""
        try:
            with open(self.path, encoding="utf-8") as file:
                # On Windows every file looks readable for all users.
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & _READ_BY_OTHERS:
                    self._warn()
                text = file.read(FILE_SIZE_BYTES_MAX)
        except OSError as error:
            raise ClientStateError(
                f"the credentials file {self.path} cannot be read ({error.strerror})"
            ) from None
        except ValueError:
            raise ClientStateError(f"{self.path} is not a text file: {_FORM}") from None
        found = self._parse(text)
        return Credentials(found["accessKey"], found["secretKey"])

    def _parse(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
            name, separator, value = (part.strip() for part in line.partition(":"))
            if not name or name.startswith("#"):
                continue
            if not separator or name not in _NAMES or name in found:
                raise ClientStateError(f"line {number} of {self.path} is invalid: {_FORM}")
            found[name] = _unquote(value)
        missing = [name for name in _NAMES if not found.get(name)]
        if missing:
            raise ClientStateError(f"{self.path} has no {' and no '.join(missing)}: {_FORM}")
        return found

    def _warn(self) -> None:
        if self.path not in _warned:
            _warned.add(self.path)
            log.warning(
                "other users can read the secret in %s: chmod 600 %s",
                self.path,
                self.path,
            )


def _unquote(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


CredentialsChoice = Credentials | CredentialsFile | str | Path | None
"""The type of `credentials`: a user and secret, a file of them, or None for the environment's."""


class CredentialsSource(Protocol):
    """Returns the credentials for a new connection; None: requests are not signed."""

    def __call__(self) -> Credentials | None:
        """Return the current credentials. Raises ClientStateError."""

    @property
    def origin(self) -> str:
        """The origin of the credentials, as named in error messages."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    credentials: Credentials | None
    origin: str

    def __call__(self) -> Credentials | None:
        return self.credentials


NOBODYS: CredentialsSource = _Fixed(None, "")


def choose_credentials(
    credentials: CredentialsChoice, environment: Mapping[str, str] = os.environ
) -> CredentialsSource:
    """Return the source for the argument *credentials*, after reading it once.

    Raises:
        ClientStateError: the file is unusable, or the environment is incomplete or ambiguous.
    """
    if credentials is None:
        return _read_environment(environment)
    if isinstance(credentials, Credentials):
        return _Fixed(credentials, "credentials=")
    file = credentials
    if not isinstance(file, CredentialsFile):
        file = CredentialsFile(os.path.abspath(file))
    file()
    return file


def find_environment_file(environment: Mapping[str, str] = os.environ) -> CredentialsFile | None:
    """Return the file that the environment names."""
    path = environment.get(FILE_VARIABLE)
    return CredentialsFile(os.path.abspath(path)) if path else None


def _read_environment(environment: Mapping[str, str]) -> CredentialsSource:
    access_key = environment.get(ACCESS_KEY_VARIABLE, "")
    secret = environment.get(SECRET_KEY_VARIABLE, "")
    file = find_environment_file(environment)
    if file is not None:
        if access_key or secret:
            raise ClientStateError(
                f"{FILE_VARIABLE} is set together with {ACCESS_KEY_VARIABLE} or "
                f"{SECRET_KEY_VARIABLE}: set either the file or the keys"
            )
        file()
        return file
    if bool(access_key) != bool(secret):
        raise ClientStateError(
            f"only one of {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE} is set: set both or none"
        )
    if not access_key:
        return NOBODYS
    return _Fixed(Credentials(access_key, secret), f"${SECRET_KEY_VARIABLE}")
