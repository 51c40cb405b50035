"""Random SQL92 expressions, valid and invalid, to compare evaluators."""

import random

_NAMES = ["a", "b", "c", "d", "a", "b", "zz", "TAGS", "-a"]
_NUMBERS = ["5", "1", "10", "0", "-5", "2147483648", "5L", "1.5", "5.0", ".5", "5e0", "0.0"]
_OTHERS = ["'x'", "'5'", "'true'", "'eu'", "''", "-'x'", "TRUE", "FALSE", "NULL"]
_ATOMS = [*_NAMES, *_NUMBERS, *_OTHERS]
_BINARY = ["=", "<>", ">", ">=", "<", "<=", "=", "AND", "OR", "AND", "OR"]
_MARKS = ["(", ")", ",", "+", "-", "--", "/*", "*/", "#"]
_WORDS = [*_ATOMS, *_BINARY, *_MARKS, "NOT", "IS", "IN", "BETWEEN", "CONTAINS", "STARTSWITH"]


def random_expression(random: random.Random) -> str:
    """Return one expression; every third is just a sequence of words."""
    if random.random() < 0.33:
        return " ".join(random.choice(_WORDS) for _ in range(random.randint(1, 7)))
    return _expression(random, 3)


def _expression(random: random.Random, depth: int) -> str:
    if depth == 0:
        return random.choice(_ATOMS)

    def part() -> str:
        inner = _expression(random, random.randint(0, depth - 1))
        return f"({inner})" if random.random() < 0.4 else inner

    def name() -> str:
        return random.choice("abcd") if random.random() < 0.9 else part()

    negated = random.choice(["", "NOT "])
    match random.randint(0, 9):
        case 0:
            return f"NOT {part()}"
        case 1:
            return f"{part()} IS {negated}NULL"
        case 2:
            return f"{name()} {negated}BETWEEN {part()} AND {part()}"
        case 3:
            return f"{name()} {negated}IN ('5', '{random.choice(['x', 'eu', '1'])}')"
        case 4:
            word = random.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
            return f"{name()} {negated}{word} {random.choice(_OTHERS)}"
        case 5:
            return f"{random.choice('+-')}{part()}"
        case _:
            return f"{part()} {random.choice(_BINARY)} {part()}"
