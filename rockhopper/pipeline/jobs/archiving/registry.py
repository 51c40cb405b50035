"""Avro bodies with a schema id in front, as Confluent's serializers write them.

    offset  size  what
    0       1     0
    1       4     the id of the writer's schema in a registry, big-endian
    5             the datum, without a header of its own

The registry is a server with a REST API (``GET /schemas/ids/7``), or a directory with a file for
each schema: ``7.avsc``.
"""

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rockhopper.pipeline.errors import PipelineError

_FRAME = struct.Struct(">bI")
_TIMEOUT_S = 30
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUFFIX = ".avsc"
_DEPTH_MAX = 20


def split(body: bytes) -> tuple[int, int] | None:
    """Return the schema id and the start of the datum; None if the body has another form."""
    if len(body) < _FRAME.size:
        return None
    magic, schema_id = _FRAME.unpack_from(body)
    return (schema_id, _FRAME.size) if magic == 0 else None


class Registry:
    """Looks up schemas, and caches them."""

    def __init__(self, where: str) -> None:
        """*where* is an address (``https://user:password@host:8081``) or a directory."""
        self._where = where.rstrip("/")
        self._is_remote = where.startswith(("http://", "https://"))
        self._parsed: dict[int, Any] = {}

    def schema(self, schema_id: int) -> Any:
        """Return the schema with that id, parsed by fastavro; None if missing, or not Avro.

        Blocks. Raises PipelineError if the registry cannot answer.
        """
        if schema_id not in self._parsed:
            self._parsed[schema_id] = self._look_up(schema_id)
        return self._parsed[schema_id]

    def newest(self, subject: str) -> str:
        """Return the newest schema of *subject*, or of the directory, as text.

        Raises PipelineError.
        """
        if not self._is_remote:
            numbers = [int(path.stem) for path in self._files() if path.stem.isdecimal()]
            if not numbers:
                raise PipelineError(
                    f"the directory {self._where} has no schemas: put each into a file that is "
                    f"named by its id, such as 7{_SUFFIX}"
                )
            return self._text_of(max(numbers)) or ""
        found = self._get(f"/subjects/{_quote(subject)}/versions/latest")
        if found is None:
            raise PipelineError(
                f"the schema registry {self._told()} has no subject {subject!r}: name the one of "
                "these bodies (--subject), or give the schema to read by (--schema)"
            )
        whole: str = json.dumps(self._with_references(found))
        return whole

    def _look_up(self, schema_id: int) -> Any:
        import fastavro

        if self._is_remote:
            found = self._get(f"/schemas/ids/{schema_id}")
            if found is None or found.get("schemaType", "AVRO") != "AVRO":
                return None
            schema = self._with_references(found)
        else:
            text = self._text_of(schema_id)
            if text is None:
                return None
            schema = _json(text, f"{self._where}/{schema_id}{_SUFFIX}")
        try:
            return fastavro.parse_schema(schema)
        except Exception as error:
            raise PipelineError(
                f"the schema {schema_id} of {self._told()} is not a valid Avro schema "
                f"({error}): correct it"
            ) from error

    def _with_references(self, found: Mapping[str, Any], depth: int = 0) -> Any:
        """Return the schema with its references replaced by the schemas that they name."""
        named: dict[str, Any] = {}
        for reference in found.get("references") or ():
            path = f"/subjects/{_quote(reference['subject'])}/versions/{reference['version']}"
            other = self._get(path) if depth < _DEPTH_MAX else None
            if other is None:
                raise PipelineError(
                    f"the schema registry {self._told()} has no version {reference['version']} of "
                    f"{reference['subject']!r}, which another schema refers to: put it there"
                )
            named[reference["name"]] = self._with_references(other, depth + 1)
        schema = _json(str(found.get("schema")), f"a schema of {self._told()}")
        return _fill(schema, named)

    def _files(self) -> list[Path]:
        directory = Path(self._where)
        if not directory.is_dir():
            raise PipelineError(
                f"there is no directory of schemas {self._where}: correct it, or give the address "
                "of a schema registry, which begins with http:// or https://"
            )
        return sorted(directory.glob(f"*{_SUFFIX}"))

    def _text_of(self, schema_id: int) -> str | None:
        self._files()
        try:
            return (Path(self._where) / f"{schema_id}{_SUFFIX}").read_text("utf-8")
        except FileNotFoundError:
            return None

    def _get(self, path: str) -> Mapping[str, Any] | None:
        """Return the answer to a request; None if the object is missing. Raises PipelineError."""
        parts = urllib.parse.urlsplit(self._where)
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(plain + path, headers={"Accept": _ACCEPT})
        if parts.username is not None:
            user, word = (urllib.parse.unquote(p or "") for p in (parts.username, parts.password))
            secret = base64.b64encode(f"{user}:{word}".encode()).decode()
            request.add_header("Authorization", f"Basic {secret}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise PipelineError(
                f"the schema registry {self._told()} refuses {path} ({error.code} "
                f"{error.reason}): check the user and password in its address"
            ) from error
        except OSError as error:
            raise PipelineError(
                f"cannot query the schema registry {self._told()} ({error}): check that it "
                "runs and that the workers can reach it"
            ) from error
        found = _json(text, f"the answer of {self._told()}{path}")
        if not isinstance(found, dict):
            raise PipelineError(f"{self._told()} answers {path} with no object: is it a registry?")
        return found

    def _told(self) -> str:
        parts = urllib.parse.urlsplit(self._where)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


@lru_cache(maxsize=16)
def registry_at(where: str) -> Registry:
    """Return the process-wide registry for a location, so each schema is looked up once."""
    return Registry(where)


def _quote(name: str) -> str:
    return urllib.parse.quote(str(name), safe="")


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise PipelineError(f"{what} is not valid JSON ({error}): correct it") from None


def _fill(schema: Any, named: dict[str, Any]) -> Any:
    """Replace the first mention of each name in *named* by its definition."""
    if isinstance(schema, str):
        return named.pop(schema, schema)
    if isinstance(schema, list):
        return [_fill(each, named) for each in schema]
    if isinstance(schema, dict):
        kept = {}
        for key, value in schema.items():
            is_type = key in ("type", "items", "values", "fields")
            kept[key] = _fill(value, named) if is_type else value
        return kept
    return schema
