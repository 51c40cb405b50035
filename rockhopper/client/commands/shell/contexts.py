"""Contexts: named clusters with their connection settings, in a file of the user.

    {"current": "prod", "contexts": {"prod": {"nameserver": "10.0.0.1:9876", "tls": true, …}}}

The file is ``contexts.json`` in ``$XDG_CONFIG_HOME/rockhopper``, else ``~/.config/rockhopper``.
Only its owner can read it, and it is replaced as a whole. It contains paths of files, never
secrets.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from rockhopper.client.commands.output import write_note
from rockhopper.client.network.addresses import parse_nameservers
from rockhopper.client.network.credentials import FILE_VARIABLE
from rockhopper.client.network.tls import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    TLS_VARIABLE,
    VERIFY_VARIABLE,
)
from rockhopper.paths import expand_home

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ContextError(click.ClickException):
    """The contexts cannot be used; the message gives the reason and a remedy."""

    def show(self, file: object = None) -> None:
        """Write the message in the format of all other errors."""
        write_note(f"rockhopper: {self.message}")


class Context(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The name servers of a cluster, and how to connect to them."""

    nameserver: str
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_verify: bool = True
    credentials: str | None = None
    """The path of a file with accessKey and secretKey."""

    def variables(self) -> dict[str, str]:
        """Return the settings as environment variables."""
        texts = {
            TLS_VARIABLE: "true" if self.tls else None,
            CA_VARIABLE: self.tls_ca,
            CERTIFICATE_VARIABLE: self.tls_cert,
            KEY_VARIABLE: self.tls_key,
            VERIFY_VARIABLE: None if self.tls_verify else "false",
            FILE_VARIABLE: self.credentials,
        }
        return {name: text for name, text in texts.items() if text is not None}


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    current: str | None = None
    contexts: dict[str, Context] = field(default_factory=dict)


def find_contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the contexts file. Raises ContextError."""
    home = environment.get("XDG_CONFIG_HOME") or "~/.config"
    try:
        return expand_home(home) / "rockhopper" / "contexts.json"
    except OSError as error:
        raise ContextError(
            f"there is no directory for contexts ({error.strerror}): set HOME or XDG_CONFIG_HOME"
        ) from None


def check_name(name: str) -> str:
    """Return *name*, or end the program with exit code 2."""
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} is not a valid context name: use letters, digits, '.', '_' and '-'"
        )
    return name


@dataclass
class Contexts:
    """The contexts in a file."""

    path: Path | None
    """The path of the file; None if the home directory is unknown."""
    current: str | None = None
    by_name: dict[str, Context] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None = None) -> "Contexts":
        """Read the contexts; a missing file has none. Raises ContextError."""
        try:
            path = path or find_contexts_path()
        except ContextError:
            return cls(None)
        try:
            document = msgspec.json.decode(path.read_bytes(), type=_Document)
            for context in document.contexts.values():
                parse_nameservers(context.nameserver)
        except (FileNotFoundError, NotADirectoryError):
            return cls(path)
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ContextError(
                f"the contexts in {path} cannot be read ({why}): repair the file, or remove it "
                "and add them again; --nameserver works without it"
            ) from None
        if document.current not in document.contexts:
            document.current = None
        return cls(path, document.current, document.contexts)

    def save(self) -> None:
        """Replace the file. Raises ContextError, which leaves it unchanged."""
        import tempfile  # of those who save a context

        path = self.path or find_contexts_path()
        document = _Document(self.current, dict(sorted(self.by_name.items())))
        text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkstemp creates a file that only its owner can read.
            number, name = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise ContextError(
                f"{path} cannot be written ({error.strerror}): set XDG_CONFIG_HOME to a writable "
                "directory"
            ) from None

    def get(self, name: str) -> Context:
        """Return the context with this name. Raises ContextError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet"
            raise ContextError(
                f"there is no context {name!r}; existing ones: {known} (`rockhopper context add` "
                "creates one)"
            )
        return self.by_name[name]
