"""The table beside Kafka: ratios of medians, and what is above what is wanted."""

from benchmarks.spark_beside_kafka import Results


def results() -> Results:
    seconds = {"kafka-read": [4.0, 5.0, 9.0], "read": [6.0, 4.0, 1.0], "wide": [3.0]}
    cpu = {"kafka-read": [8.0, 8.0, 8.0], "read": [4.0, 4.0, 4.0], "wide": [0.5]}
    return Results("a machine", 1_000_000, seconds, cpu)


def test_ratios_are_those_of_medians() -> None:
    found = results()
    assert found.ratio("read") == 0.8
    assert found.ratio("read", by_cpu=True) == 0.5
    assert found.ratio("wide") == 0.5
    assert found.ratio("stream") is None


def test_the_table_says_what_is_above_what_is_wanted() -> None:
    found = results()
    found.seconds["count"], found.cpu_seconds["count"] = [9.0], [9.0]
    found.seconds["kafka-count"], found.cpu_seconds["kafka-count"] = [3.0], [3.0]
    lines = found.render().splitlines()
    (read,) = [line for line in lines if "defaults" in line]
    assert [cell.strip() for cell in read.split("|")[2:-1]] == [
        *("4.00", "4.0", "0.80", "0.50", "<= 1", "ok"),
    ]
    (count,) = [line for line in lines if line.startswith("| count()")]
    assert count.rstrip(" |").endswith("ABOVE")
