"""What time it is at brokers."""

from rockhopper.client.network.broker_clocks import BrokerClocks


def test_time_goes_on_from_what_a_broker_said() -> None:
    now_ms = 5_000.0
    clocks = BrokerClocks(lambda: now_ms)
    assert clocks.now_ms("a:1") is None
    assert clocks.now_ms(None) is None
    clocks.heard("a:1", {"storeTime": "1700000000000"})
    now_ms = 5_250.0
    assert clocks.now_ms("a:1") == 1_700_000_000_250
    assert clocks.now_ms("b:1") is None


def test_a_broker_that_does_not_say_it_any_more_is_not_judged_by_the_one_before() -> None:
    clocks = BrokerClocks(lambda: 0.0)
    for fields in (None, {}, {"storeTime": ""}, {"storeTime": "soon"}):
        clocks.heard("a:1", {"storeTime": "7"})
        clocks.heard("a:1", fields)
        assert clocks.now_ms("a:1") is None
