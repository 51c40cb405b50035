"""SQL92 expressions over message properties, compatible with RocketMQ's rocketmq-filter.

``compile_filter`` parses an expression once and returns an ``SqlFilter``, which is evaluated for
every message. Grammar, null rules and number formats match the reference, including its oddities:
tests/golden contains a truth table that the reference evaluated. docs/filters.md is for users.

    lexer.py         characters to tokens, one at a time and only as far as needed
    parser.py        tokens to nodes, without recursion: hostile input meets a limit, not the stack
    expressions.py   nodes: the valid combinations, and the closures that evaluate them
    java_numbers.py  texts to numbers as Integer, Long and Double parse them in Java
    sql_filter.py    SqlFilter: one compiled expression
"""

from rockhopper.protocol.sql92.sql_filter import EXPRESSION_LENGTH_MAX, SqlFilter, compile_filter

__all__ = ["EXPRESSION_LENGTH_MAX", "SqlFilter", "compile_filter"]
