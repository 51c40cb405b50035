"""Real text that every machine with Python has: the reference behind ``help()``."""

import re
from collections.abc import Iterator

WORD_PATTERN = "[a-z]{4,}"
"""The pattern of a word, in lower case; it has the same meaning in Python and Java."""
_WORD = re.compile(WORD_PATTERN)


def passages() -> list[tuple[str, str]]:
    """Return lines of text, each with the name of its chapter."""
    return [
        (chapter, line.strip())
        for chapter, text in _chapters()
        for line in text.splitlines()
        if _WORD.search(line.lower())
    ]


def _chapters() -> Iterator[tuple[str, str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions leave it out
        import builtins

        for name, value in sorted(vars(builtins).items()):
            yield name, str(getattr(value, "__doc__", "") or "")
        return
    yield from sorted(topics.items())


def words(line: str) -> list[str]:
    """Return the words of a line, to check Spark's counts."""
    return _WORD.findall(line.lower())
