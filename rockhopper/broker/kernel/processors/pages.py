"""Pagination of the topic and group tables for tools (codes 21 and 201)."""

from rockhopper.protocol import fastjson

PAGE_LENGTH_MAX = 2000


def page(
    names: list[str], start: int | None, length: int | None, *, is_same_version: bool
) -> list[str]:
    """Return the requested page of *names*; all of them for old clients, which send no start.

    If the table has changed since the first page, the pages start again.
    """
    if start is None:
        return names
    if start < 0 or not is_same_version:
        start = 0
    wanted = PAGE_LENGTH_MAX if length is None or length <= 0 else min(length, PAGE_LENGTH_MAX)
    return names[start : start + wanted]


def is_version(text: str | None, version: dict[str, int]) -> bool:
    """Return whether the table still has the DataVersion that a tool received with its first page.

    Raises:
        MalformedBodyError: *text* is not JSON.
    """
    return not text or bool(fastjson.loads(text) == version)
