"""What the three serialisations have in common."""

import pytest

from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.headers.header_fields import (
    EXT_FIELDS_MAX,
    LANGUAGE_BY_NAME,
    LANGUAGE_NAMES,
    check_ext_count,
    normalize_language,
)


def test_languages_go_both_ways() -> None:
    assert LANGUAGE_BY_NAME["GO"] == 9
    assert {LANGUAGE_NAMES[number]: number for number in LANGUAGE_NAMES} == LANGUAGE_BY_NAME


@pytest.mark.parametrize(("ordinal", "known"), [(0, 0), (12, 12), (99, 7), (-1, 7), (200, 7)])
def test_a_language_that_came_later_is_another_one(ordinal: int, known: int) -> None:
    assert normalize_language(ordinal) == known
    assert LanguageCode(known) in LanguageCode


def test_as_many_fields_as_any_client_sends_are_taken() -> None:
    check_ext_count(EXT_FIELDS_MAX)
    with pytest.raises(MalformedHeaderError, match=r"has 257 ext fields; 256 are allowed"):
        check_ext_count(EXT_FIELDS_MAX + 1)
