"""Fits tables to a terminal: long names lose their middle, and rows may take several lines.

No column is ever omitted. Numbers, times and ids are never shortened. If a row still does not fit,
it continues in indented lines below. Without a terminal nothing is shortened.
"""

import re
from collections.abc import Sequence
from textwrap import wrap

NUMBER = re.compile(r"-|[+-]?[\d.,]+")
_SEPARATION = 2
_INDENTATION = 2
_SHORTENED_WIDTH_MIN = 16
_TIME_WIDTH = 23
_PIPED_WIDTH_MAX = 40
# Values that users copy into the next command are never shortened.
_WHOLE = frozenset({"ID", "HANDLE", "SETTING"})


def count_cells(text: str) -> int:
    """Return how many columns of a terminal `text` takes: East Asian characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def pad(text: str, width: int) -> str:
    """Return `text` padded with blanks to `width` columns of a terminal."""
    return text + " " * (width - count_cells(text))


def cut(text: str, width: int) -> str:
    """Return `text` cut to `width` columns of a terminal, with "…" at the end if cut."""
    if count_cells(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + "…"


def shorten(text: str, width: int) -> str:
    """Return `text` with "…" in place of its middle if it takes more than `width` columns.

    Both ends are kept, because names that begin alike often end differently.
    """
    if count_cells(text) <= width:
        return text
    head, tail = text[: width // 2], text[len(text) - (width - 1) // 2 :]
    while count_cells(head) + 1 + count_cells(tail) > width:
        if count_cells(head) > count_cells(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}…{tail}"


def fit_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    ends_in_text: bool = False,
) -> tuple[list[str], list[str]]:
    """Return the lines of a table's head and of its rows, fitted to a terminal's `width`.

    With `ends_in_text`, the last column is moved below the others, uncut, if it does not fit beside
    them.
    """
    texts = [""] * len(rows)
    below = []
    if ends_in_text and _is_too_wide(columns, rows, width):
        *columns, last = columns
        texts = [row[-1].removeprefix("-") for row in rows]
        rows = [row[:-1] for row in rows]
        below = [" " * _INDENTATION + last]
    head, *others = _lines(columns, rows, width)
    for lines, text in zip(others, texts, strict=True):
        if text and width is not None:
            lines += _wrap_indented(text, width)
    return head + below, [line for lines in others for line in lines]


def _is_too_wide(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> bool:
    return width is not None and _sum_widths(_measure_columns(columns, rows)) > width


def _wrap_indented(text: str, width: int) -> list[str]:
    indent = " " * _INDENTATION
    return wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _measure_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(count_cells, column)) for column in zip(columns, *rows, strict=True)]


def _lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None
) -> list[list[str]]:
    """Return the lines of the head and of each row."""
    numbers = [_holds_numbers([row[index] for row in rows]) for index in range(len(columns))]
    widths = _measure_columns(columns, rows)
    folds = [range(len(columns))]
    if width is None:
        # A long name shifts only its own row, not all of them, to the right.
        widths = [min(each, _PIPED_WIDTH_MAX) for each in widths]
    else:
        widths, folds = _fit(columns, widths, numbers, width)
    head, *others = (
        _fold_row(_align_row(row, widths, numbers, is_whole=width is None), folds)
        for row in (columns, *rows)
    )
    return [head, *([line for line in lines if line or len(folds) == 1] for lines in others)]


def _holds_numbers(column: Sequence[str]) -> bool:
    return all(map(NUMBER.fullmatch, column)) and any(text != "-" for text in column)


def _fold_row(texts: Sequence[str], folds: Sequence[range]) -> list[str]:
    """Return the lines of one row; all but the first are indented."""
    return [
        (" " * _INDENTATION * (number > 0) + "  ".join(texts[i] for i in fold)).rstrip()
        for number, fold in enumerate(folds)
    ]


def _align_row(
    row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool], *, is_whole: bool
) -> list[str]:
    return [
        pad(text, width)
        if is_whole and not is_number
        else _format_cell(text, width, is_last=index == len(row) - 1, is_number=is_number)
        for index, (text, width, is_number) in enumerate(zip(row, widths, numbers, strict=True))
    ]


def _format_cell(text: str, width: int, *, is_last: bool, is_number: bool) -> str:
    if is_number:
        return " " * (width - count_cells(text)) + text
    return pad(cut(text, width) if is_last else shorten(text, width), width)


def _fit(
    columns: Sequence[str], natural: Sequence[int], numbers: Sequence[bool], width: int
) -> tuple[list[int], list[range]]:
    """Return the width of each column, and which columns share a line."""
    last = len(columns) - 1
    least = [
        _find_least_width(name, natural[index], is_number=numbers[index])
        for index, name in enumerate(columns)
    ]
    widths, folds = list(natural), _find_folds(least, width)
    for number, fold in enumerate(folds):
        room = width - (_INDENTATION if number else 0)
        spare = max(_sum_widths([natural[index] for index in fold]) - room, 0)
        if last in fold:
            # Shrink the last column first: it holds text, whose beginning is the most important
            # part.
            taken = min(spare, widths[last] - least[last])
            widths[last] -= taken
            spare -= taken
        for _ in range(spare):
            givers = [index for index in fold if widths[index] > least[index]]
            if not givers:
                break
            widths[max(givers, key=widths.__getitem__)] -= 1
    return widths, folds


def _find_least_width(name: str, natural: int, *, is_number: bool) -> int:
    # This covers the width of times, which are useless without their middle.
    if is_number or name in _WHOLE or natural <= _TIME_WIDTH:
        return natural
    return max(_SHORTENED_WIDTH_MIN, count_cells(name))


def _sum_widths(widths: Sequence[int]) -> int:
    return sum(widths) + _SEPARATION * (len(widths) - 1)


def _find_folds(widths: Sequence[int], width: int) -> list[range]:
    folds: list[range] = []
    begin = 0
    for end in range(1, len(widths) + 1):
        room = width - (_INDENTATION if folds else 0)
        if end - 1 > begin and _sum_widths(widths[begin:end]) > room:
            folds.append(range(begin, end - 1))
            begin = end - 1
    return [*folds, range(begin, len(widths))]
