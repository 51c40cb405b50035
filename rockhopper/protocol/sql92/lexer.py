"""The lexer of SQL92 expressions.

    name     [A-Za-z_$][A-Za-z0-9_$]*           keywords in any case
    string   ' any character but ', which is written '' '
    whole    0 | [1-9][0-9]*[lL]?
    float    digits . digits? exponent? | . digits exponent? | digits exponent
    comment  -- to the end of a line that ends, /* to */

As in the reference, the lexer produces tokens on demand: text behind the place where the parser
stops is never examined.
"""

import re
from typing import NamedTuple

from rockhopper.protocol.errors import SqlSyntaxError

_TEXT_WORDS = ["CONTAINS", "STARTSWITH", "ENDSWITH"]
KEYWORDS = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *_TEXT_WORDS]
)
SYMBOLS = frozenset(["=", "<>", ">", ">=", "<", "<=", "(", ",", ")", "+", "-"])

# The kinds of tokens besides keywords and symbols, whose kind is their own text.
NAME, STRING, WHOLE, FLOAT, END = "name", "string", "whole number", "number", "end"

_BLANKS = re.compile(r"[ \t\n\r\f]*+")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_EXPONENT = r"[eE][+-]?+[0-9]++"
_FLOAT = re.compile(
    rf"[0-9]++\.[0-9]*+(?:{_EXPONENT})?+|\.[0-9]++(?:{_EXPONENT})?+|[0-9]++{_EXPONENT}"
)
_WHOLE = re.compile(r"0|[1-9][0-9]*+[lL]?+")
_LINE_END = re.compile(r"[\n\r]")


class Token(NamedTuple):
    """*kind* is a keyword in capitals, a symbol, or one of the five names above."""

    kind: str
    text: str
    position: int


class Lexer:
    """Returns the tokens of one expression in order; after the last one always END."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def next(self) -> Token:
        """Return the next token. Raises SqlSyntaxError."""
        self._skip_blanks()
        text, at = self._text, self._at
        if at >= len(text):
            return Token(END, "", at)
        match = _WORD.match(text, at)
        if match is not None:
            self._at = match.end()
            word = match[0]
            upper = word.upper()
            return Token(upper if upper in KEYWORDS else NAME, word, at)
        if text[at] == "'":
            return self._string(at)
        for kind, pattern in ((FLOAT, _FLOAT), (WHOLE, _WHOLE)):
            match = pattern.match(text, at)
            if match is not None:
                self._at = match.end()
                return Token(kind, match[0], at)
        for size in (2, 1):
            symbol = text[at : at + size]
            if symbol in SYMBOLS:
                self._at = at + len(symbol)
                return Token(symbol, symbol, at)
        raise SqlSyntaxError(_not_a_token(text, at), at)

    def _skip_blanks(self) -> None:
        text = self._text
        while True:
            match = _BLANKS.match(text, self._at)
            assert match is not None
            at = self._at = match.end()
            # As in the reference, a comment must end with a line end.
            if text.startswith("--", at) and at < self._last_line_end:
                line_end = _LINE_END.search(text, at)
                assert line_end is not None
                self._at = line_end.end()
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise SqlSyntaxError("the comment that starts with /* does not end", at)
                self._at = end + 2
            else:
                return

    def _string(self, start: int) -> Token:
        """Return the longest possible string, so ``'a''b'`` is one and not two."""
        text = self._text
        end = -1
        at = text.find("'", start + 1)
        while at >= 0:
            end = at
            if not text.startswith("'", at + 1):
                break
            at = text.find("'", at + 2)
        if end < 0:
            raise SqlSyntaxError("the string that starts here has no closing quote", start)
        self._at = end + 1
        return Token(STRING, text[start + 1 : end].replace("''", "'"), start)


def _not_a_token(text: str, at: int) -> str:
    found = text[at]
    if text.startswith("!=", at):
        return "'!=' is not supported; write '<>'"
    if found == '"':
        return "strings need single quotes, and property names none"
    return f"{found!r} is not allowed here"
