"""Writing topics from Spark: ``df.write.format("rocketmq")`` and ``df.writeStream``.

``rules`` reads the options, ``columns`` checks the frame's columns, ``encoding`` turns Arrow
batches into messages, ``sending`` sends them at least once, ``staging`` exactly once; ``writer``
is what Spark calls.
"""
