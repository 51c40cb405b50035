"""Reading the files of a store directory: the source ``rocketmq-store``, and what jobs share."""
