"""Expressions and property sets of the truth table for SQL92; the verdicts are RocketMQ's.

Most expressions are lines of ``sql_expressions.txt``: comparisons that are true, false or unknown,
then texts, ranges and errors.
"""

from pathlib import Path

PROPERTY_SETS: list[dict[str, str]] = [
    {},
    {"a": "1"},
    {"a": "5", "b": "5", "c": "x"},
    {"a": "10", "b": "2", "c": "eu", "TAGS": "red"},
    {"a": "-3", "b": "5", "d": "true"},
    {"a": "1.0", "b": "1", "d": "TRUE"},
    {"a": "abc", "b": "abd", "c": "it's", "d": "false"},
    {"a": "2147483648", "b": "-2147483649", "c": "9223372036854775808"},
    {"a": "+5", "b": "005", "c": " 5 ", "d": "5 "},
    {"a": "", "b": "0", "c": "-0", "d": "yes"},
    {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "nan"},
    {"a": "0x10", "b": "0x1p4", "c": "1e3", "d": "1_000"},
    {"a": "٣", "b": "5f", "c": "中文", "d": "café"},
    {"a": "5d", "b": ".5", "c": "5.", "d": "-0.0"},
    {"a": "5.5", "b": "5.50", "c": "EU", "TAGS": "a'b", "KEYS": "k1 k2"},
    {"_x": "7", "$y": "7", "contains1": "z", "a": "9223372036854775807", "b": "1e400"},
    {"A": "5", "a": "6", "in1": "1", "b": "6.0", "d": "0.0"},
]

_LINES = Path(__file__).with_name("sql_expressions.txt").read_text(encoding="utf-8").splitlines()

# Several lines, or characters that do not fit into a list of lines.
_MORE = [
    "  a = 5  ",
    "a\u00a0= 5",
    "a\x0b= 5",
    "\0",
    "a = 5\0",
    "",
    " ",
    "\n",
    "a = 5 -- the end\n",
    "-- first\na = 5",
    "a = -- five\r5",
    "a = --5\n5",
    "a = --5",
    "-- # ' \n a = 5 -- ' \n OR b = 5",
    "a\r\n=\t5\f",
    "a = 'x\ny'",
    "c = 'x' /* ' */ OR a = 5",
    "a = 5 OR -- no\n-- none\nb = 5",
    "(" * 100 + "a = 5" + ")" * 100,
    "(" * 100 + "a = 5" + ")" * 99,
    "NOT " * 50 + "(a = 5)",
    "NOT " * 51 + "(a = 5)",
    "- " * 30 + "5 = a",
    "- " * 31 + "5 = a",
    "+" * 12 + "5 = a",
    " OR ".join(f"a = {number}" for number in range(200)),
    " AND ".join(f"a <> {number}" for number in range(0, 400, 2)),
    " OR ".join("(a = 5 AND b = 5)" for _ in range(50)),
    "(a = 5 AND " * 60 + "b = 5" + ")" * 60,
    "(a = 5 OR " * 60 + "b = 2" + ")" * 60,
    "a IN (" + ",".join(f"'{number}'" for number in range(300)) + ")",
    "a = 5" + " = TRUE" * 60,
    "a = 5" + " IS NULL" * 61,
    "a = 5 AND NOT (b = 2 OR NOT (c = 'x' AND NOT (zz IS NOT NULL OR d = TRUE)))",
]

EXPRESSIONS: list[str] = [*_LINES, *_MORE]
