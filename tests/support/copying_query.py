"""A driver of its own: copies a topic into another one, exactly once, until it is killed.

    python -m tests.support.copying_query NAMESERVER CHECKPOINT [--to-the-end]

Prints ``ready`` when the query runs, and ``batch N`` after each batch that had messages.
"""

import sys
import threading

from rockhopper import pipeline

SOURCE, TARGET = "source", "target"
MESSAGES_PER_BATCH = 1_000
PLACE = "concat_ws(':', brokerName, queueId, queueOffset)"


def main(nameserver: str, checkpoint: str, *flags: str) -> None:
    """Run the query."""
    spark = pipeline.local_session(
        "copy",
        master="local[2,4]",
        **{
            "spark.log.level": "ERROR",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    options = {"nameServer": nameserver}
    to_the_end = "--to-the-end" in flags
    copied = (
        spark.readStream.format("rocketmq")
        .options(
            **options,
            subscribe=SOURCE,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(MESSAGES_PER_BATCH * (50 if to_the_end else 1)),
            minPartitions="3",
        )
        .load()
        .selectExpr(f"concat({PLACE}, ' ', CAST(body AS STRING)) AS body", "keys")
    )
    writer = copied.writeStream.format("rocketmq").options(
        **options, topic=TARGET, delivery="exactly-once", checkpointLocation=checkpoint
    )
    if to_the_end:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    print("ready", flush=True)
    done = threading.Event()

    def report() -> None:
        last = -1
        while not done.wait(0.05):
            progress = query.lastProgress
            if progress and progress["batchId"] != last and progress["numInputRows"]:
                last = progress["batchId"]
                print(f"batch {last}", flush=True)

    threading.Thread(target=report, daemon=True).start()
    query.awaitTermination()
    done.set()
    print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
