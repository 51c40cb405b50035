"""Load a document of one checked line (protocol.store.store_paths) from its file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import structlog

from rockhopper.protocol.store.store_paths import decode_checked_line, encode_checked_line

log = structlog.get_logger("broker.store")

decode, encode = decode_checked_line, encode_checked_line

Value = TypeVar("Value")


def load(path: Path, value_of: Callable[[Any], Value], if_damaged: str) -> Value | None:
    """Return the decoded document of a file, or None if the file does not exist.

    A damaged document, or one for which *value_of* raises ValueError or KeyError, counts as
    missing; a warning with the text *if_damaged* is logged.
    """
    try:
        return value_of(decode_checked_line(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        log.warning(if_damaged, path=str(path), reason=str(error))
        return None
