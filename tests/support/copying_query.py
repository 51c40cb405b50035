"""A separate driver: it copies a topic into others, exactly once, until it is killed.

    python -m tests.support.copying_query NAMESERVER CHECKPOINT [--by-columns] [--to-the-end]

All messages go to TARGET. With ``--by-columns``, the number of a row determines its topic: TARGET,
SECOND, or an invalid one, whose rows become dead letters in LETTERS. It also determines whether the
row has a sharding key, which depends on its queue. The driver prints ``ready`` when the query runs,
and ``batch N`` after each batch with messages.
"""

import sys
import threading

from rockhopper import pipeline

SOURCE, TARGET, SECOND, LETTERS = "source", "target", "second", "letters"
MESSAGES_PER_BATCH = 1_000
PLACE = "concat_ws(':', brokerName, queueId, queueOffset)"
NUMBER = "CAST(CAST(body AS STRING) AS INT)"
TOPIC = (
    f"CASE WHEN {NUMBER} % 50 = 0 THEN 'no topic' "
    f"WHEN {NUMBER} % 3 = 0 THEN '{SECOND}' ELSE '{TARGET}' END"
)
KEY = f"CASE WHEN {NUMBER} % 4 <> 0 THEN concat_ws(':', brokerName, queueId) END"


def topic_of(number: int) -> str:
    """Return the target of a message with --by-columns, like TOPIC and the sink."""
    if number % 50 == 0:
        return LETTERS
    return SECOND if number % 3 == 0 else TARGET


def has_key(number: int) -> bool:
    """Return whether it then has a sharding key, like KEY."""
    return number % 4 != 0


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
    to_the_end, by_columns = "--to-the-end" in flags, "--by-columns" in flags
    columns = [f"concat({PLACE}, ' ', CAST(body AS STRING)) AS body", "keys"]
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
        .selectExpr(*columns, *([f"{TOPIC} AS topic", f"{KEY} AS shardingKey"] * by_columns))
    )
    where = {"onBadRow": "deadletter", "deadLetterTopic": LETTERS}
    writer = copied.writeStream.format("rocketmq").options(
        **options,
        **(where if by_columns else {"topic": TARGET}),
        delivery="exactly-once",
        checkpointLocation=checkpoint,
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
