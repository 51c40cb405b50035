"""Tokens of SQL92 expressions."""

import pytest

from rockhopper.protocol.errors import SqlSyntaxError
from rockhopper.protocol.sql92.lexer import END, FLOAT, NAME, STRING, WHOLE, Lexer, Token


def tokens(text: str) -> list[tuple[str, str]]:
    lexer = Lexer(text)
    found: list[Token] = []
    while not found or found[-1].kind != END:
        found.append(lexer.next())
    assert lexer.next().kind == END
    return [(token.kind, token.text) for token in found[:-1]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" \t\n\r\f", []),
        ("a", [(NAME, "a")]),
        ("$x_1", [(NAME, "$x_1")]),
        ("and AND aNd", [("AND", "and"), ("AND", "AND"), ("AND", "aNd")]),
        ("android", [(NAME, "android")]),
        ("a>=1", [(NAME, "a"), (">=", ">="), (WHOLE, "1")]),
        ("a<>b", [(NAME, "a"), ("<>", "<>"), (NAME, "b")]),
        ("a< >b", [(NAME, "a"), ("<", "<"), (">", ">"), (NAME, "b")]),
        ("-1", [("-", "-"), (WHOLE, "1")]),
        ("12L", [(WHOLE, "12L")]),
        ("012", [(WHOLE, "0"), (WHOLE, "12")]),
        ("1.5e-3", [(FLOAT, "1.5e-3")]),
        (".5", [(FLOAT, ".5")]),
        ("5.", [(FLOAT, "5.")]),
        ("1e5", [(FLOAT, "1e5")]),
        ("1e", [(WHOLE, "1"), (NAME, "e")]),
        ("'it''s'", [(STRING, "it's")]),
        ("''", [(STRING, "")]),
        ("'a' 'b'", [(STRING, "a"), (STRING, "b")]),
        ("a -- rest\n= 1", [(NAME, "a"), ("=", "="), (WHOLE, "1")]),
        ("a /* = * 2 */ = 1", [(NAME, "a"), ("=", "="), (WHOLE, "1")]),
    ],
)
def test_an_expression_is_these_tokens(text: str, found: list[tuple[str, str]]) -> None:
    assert tokens(text) == found


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("a != 1", 2, "write '<>'"),
        ('a = "x"', 4, "single quotes"),
        ("a = 'x", 4, "no closing quote"),
        ("a /* x", 2, "does not end"),
        ("a ; b", 2, "';' is not allowed here"),
        ("a é", 2, "is not allowed here"),
    ],
)
def test_what_is_no_token_is_named_with_its_place(text: str, at: int, why: str) -> None:
    with pytest.raises(SqlSyntaxError, match=why) as caught:
        tokens(text)
    assert caught.value.position == at


def test_a_comment_on_a_line_that_does_not_end_is_none() -> None:
    assert tokens("a --b") == [(NAME, "a"), ("-", "-"), ("-", "-"), (NAME, "b")]


def test_a_token_knows_where_it_begins() -> None:
    lexer = Lexer("a  = 'x'")
    assert [lexer.next().position for _ in range(3)] == [0, 3, 5]
