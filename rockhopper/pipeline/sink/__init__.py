"""Write topics from Spark: ``df.write.format("rocketmq")`` and ``df.writeStream``.

``rules`` reads the options, ``columns`` checks the columns of the frame, and ``encoding`` turns
Arrow batches into messages. ``sending`` sends them at least once, ``staging`` exactly once. Spark
calls ``writer``.
"""
