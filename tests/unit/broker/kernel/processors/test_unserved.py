"""The codes that are not served: each named once, by somebody who misses it, and none served."""

from rockhopper.broker.kernel.processors.unserved import UNSERVED
from rockhopper.broker.processor_table import build_table
from tests.support.served_broker import ServedBroker


def test_a_code_stands_in_the_list_once() -> None:
    codes = [code for each in UNSERVED for code in each.codes]
    assert len(codes) == len(set(codes))
    assert all(each.what and each.missed_by.endswith(".") for each in UNSERVED)


async def test_what_is_served_is_not_in_it(broker: ServedBroker) -> None:
    served = {int(code) for code in build_table(broker)}
    assert served & {code for each in UNSERVED for code in each.codes} == set()
