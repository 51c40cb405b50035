"""SQL92 expressions: our evaluator says what Apache's own says, and Java consumers are served."""

import random

import pytest

from tests.interop.bodies import hashes
from tests.interop.conftest import Server
from tests.interop.java_client import JavaClient, JavaClientError
from tests.support.sql_grammar import random_expression
from tests.support.sql_table import EXPRESSIONS, PROPERTY_SETS
from tests.support.sql_verdicts import our_verdicts

pytestmark = pytest.mark.interop
RANDOM_COUNT = 5000


def differences(java: JavaClient, expressions: list[str]) -> list[tuple[str, str, str]]:
    theirs = java.call("sqlVerdicts", expressions=expressions, properties=PROPERTY_SETS)
    ours = [our_verdicts(expression, PROPERTY_SETS) for expression in expressions]
    return [row for row in zip(expressions, theirs, ours, strict=True) if row[1] != row[2]]


def test_both_agree_on_the_truth_table(java: JavaClient) -> None:
    assert len(EXPRESSIONS) > 500
    assert differences(java, EXPRESSIONS) == []


@pytest.mark.parametrize("seed", range(100, 104))
def test_both_agree_on_random_expressions(java: JavaClient, seed: int) -> None:
    source = random.Random(seed)
    expressions = [random_expression(source) for _ in range(RANDOM_COUNT)]
    assert differences(java, expressions) == []


def test_a_java_push_consumer_gets_what_its_expression_selects(
    java: JavaClient, broker: Server
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Selected"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    sql = "price > 5 AND region = 'eu'"
    waiting = java.begin("consume", **address, group="selective", sql=sql, count=31)
    for prefix, price, region in (("cheap", 3, "eu"), ("far", 9, "us"), ("good", 7, "eu")):
        properties = {"price": price, "region": region}
        java.call("send", **address, count=30, prefix=prefix, properties=properties)
    java.call("send", **address, count=1, prefix="last", properties={"price": 6, "region": "eu"})

    consumed = waiting.result(90)

    expected = sorted(hashes("good", range(30)) + hashes("last", [0]))
    assert sorted(m["sha1"] for m in consumed["messages"]) == expected
    assert consumed["deliveries"] == 31


def test_a_java_consumer_does_not_start_with_a_wrong_expression(
    java: JavaClient, broker: Server
) -> None:
    address = {"nameserver": broker.nameserver, "topic": "Selected"}
    java.call("createTopic", **address, broker=broker.broker_address, queues=2)
    with pytest.raises(JavaClientError, match=r"CODE: 23 .* a text cannot be compared by '>'"):
        java.call("consume", **address, group="mistaken", sql="price > 'x'", count=1)
