"""docs/metrics.md is as the code says."""

from docs.site import metrics_page


def test_the_page_is_up_to_date() -> None:
    current = metrics_page.PAGE.read_text(encoding="utf-8")
    assert metrics_page.page(current) == current, "run `make pages`"


def test_what_is_written_by_hand_stays() -> None:
    made = metrics_page.page(f"by hand\n{metrics_page.MARKER}by a machine")
    assert made.startswith(f"by hand\n{metrics_page.MARKER}\n## Every broker")
    assert "| `rocketmq_consumer_lag_latency` | gauge | `topic`," in made
    assert "by a machine" not in made
