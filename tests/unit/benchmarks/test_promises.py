"""What strace counted, and the table of it."""

from benchmarks.brokers import promises

SUMMARY = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.95    1.402833        1015      1382           fdatasync
  0.05    0.000702         117         6         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    1.403535        1011      1388         1 total
"""


def test_calls_are_read_with_and_without_errors() -> None:
    assert promises.calls_in(SUMMARY) == {"fdatasync": 1382, "fsync": 6}
    assert promises.calls_in("") == {}


def test_the_most_frequent_call_stands_beside_the_sends() -> None:
    rows = [("Redis", "8.0.2", 1381, promises.calls_in(SUMMARY)), ("NATS", "2.15.3", 7685, {})]
    redis, nats = promises.render("a machine", rows).splitlines()[-2:]
    assert [cell.strip() for cell in redis.split("|")[3:-1]] == [
        *("1,381", "6", "1,382", "0", "0", "1.001"),
    ]
    assert nats.rstrip(" |").endswith("0.000")
