"""SQL92 expressions over message properties, as RocketMQ's rocketmq-filter understands them.

``compile_filter`` parses an expression once; the ``SqlFilter`` that it makes is asked for every
message. Grammar, null rules and number formats are the reference's, down to its oddities: a truth
table that the reference evaluated stands in tests/golden.  docs/filters.md is for users.

    lexer.py         characters to tokens, one at a time and only as far as needed
    parser.py        tokens to a node, without recursion: hostile input meets a limit, not the stack
    expressions.py   nodes: what may be combined with what, and the closures that evaluate it
    java_numbers.py  texts to numbers as Integer, Long and Double read them in Java
    sql_filter.py    SqlFilter: one expression, ready to be asked
"""

from rockhopper.protocol.sql92.sql_filter import EXPRESSION_LENGTH_MAX, SqlFilter, compile_filter

__all__ = ["EXPRESSION_LENGTH_MAX", "SqlFilter", "compile_filter"]
