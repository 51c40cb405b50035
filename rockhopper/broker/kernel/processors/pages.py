"""The pages in which tools read the tables of topics and groups (codes 21 and 201)."""

from rockhopper.protocol import fastjson

PAGE_LENGTH_MAX = 2000


def page(
    names: list[str], start: int | None, length: int | None, *, is_same_version: bool
) -> list[str]:
    """The part of *names* that was asked for; all of them for old clients, who give no start.

    When the table has changed since the first page, the pages begin anew.
    """
    if start is None:
        return names
    if start < 0 or not is_same_version:
        start = 0
    wanted = PAGE_LENGTH_MAX if length is None or length <= 0 else min(length, PAGE_LENGTH_MAX)
    return names[start : start + wanted]


def is_version(text: str | None, version: dict[str, int]) -> bool:
    """Whether the DataVersion that a tool got with its first page is still the present one.

    Raises:
        MalformedBodyError: *text* is not JSON.
    """
    return not text or bool(fastjson.loads(text) == version)
