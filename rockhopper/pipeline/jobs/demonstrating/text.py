"""Real text that is on every machine with Python: the reference behind ``help()``."""

import re
from collections.abc import Iterator

WORD_PATTERN = "[a-z]{4,}"
"""What counts as a word, in lower case; Python and Java read it alike."""
_WORD = re.compile(WORD_PATTERN)


def passages() -> list[tuple[str, str]]:
    """Lines of text, each with the name of the chapter it is from."""
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
    """The words of a line, for checking what Spark counted."""
    return _WORD.findall(line.lower())
