"""Common to the three header serialisations: the fields, their ranges, the limits."""

from typing import TypeAlias

from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.errors import MalformedHeaderError

# Code, language, version, opaque, flag, remark, ext fields.
HeaderFields: TypeAlias = tuple[int, int, int, int, int, str | None, dict[str, str] | None]

EXT_FIELDS_MAX = 256
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1

LANGUAGE_BY_NAME = {language.name: language.value for language in LanguageCode}
LANGUAGE_NAMES = {language.value: language.name for language in LanguageCode}
OTHER_LANGUAGE = LanguageCode.OTHER.value


def normalize_language(ordinal: int) -> int:
    """Return *ordinal* if it is a known language, else that of OTHER."""
    return ordinal if ordinal in LANGUAGE_NAMES else OTHER_LANGUAGE


def check_ext_count(count: int) -> None:
    """Raise MalformedHeaderError for more ext fields than any client sends."""
    if count > EXT_FIELDS_MAX:
        raise MalformedHeaderError(
            f"the header has {count} ext fields; {EXT_FIELDS_MAX} are allowed"
        )
