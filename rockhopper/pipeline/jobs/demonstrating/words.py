"""The streaming query of the demo: count each word in each time window."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.jobs.demonstrating.text import WORD_PATTERN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW_S = 1


class WordCounts:
    """The counts so far, in the driver."""

    def __init__(self) -> None:
        self.by_window: dict[tuple[int, str], int] = {}
        """By start of the window (ms) and word."""
        self.batches = 0

    def update(self, changed: "DataFrame", _: int) -> None:
        """Apply the changes of one micro-batch."""
        for row in changed.collect():
            self.by_window[int(row.start_ms), row.word] = row.times
        self.batches += 1

    def totals(self) -> Counter[str]:
        """Return the counts by word."""
        counts: Counter[str] = Counter()
        for (_, word), times in list(self.by_window.items()):
            counts[word] += times
        return counts


def start(
    spark: "SparkSession", nameserver: str, topic: str, checkpoint: str, counts: WordCounts
) -> "StreamingQuery":
    """Start to count the words of a topic."""
    from pyspark.sql import functions as f

    options: dict[str, Any] = {
        "nameServer": nameserver,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "columns": "body,storeTimestamp",
    }
    messages = spark.readStream.format("rocketmq").options(**options).load()
    found = f.expr(f"regexp_extract_all(lower(CAST(body AS STRING)), '{WORD_PATTERN}', 0)")
    counted = (
        messages.withWatermark("storeTimestamp", "1 minute")
        .select("storeTimestamp", f.explode(found).alias("word"))
        .groupBy(f.window("storeTimestamp", f"{WINDOW_S} seconds").alias("w"), "word")
        .count()
        .select(f.unix_millis("w.start").alias("start_ms"), "word", f.col("count").alias("times"))
    )
    return (
        counted.writeStream.queryName("demonstration: words")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(counts.update)
        .start()
    )
