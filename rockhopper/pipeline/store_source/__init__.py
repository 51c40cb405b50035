"""Read the files of a store directory: the source ``rocketmq-store``, and code that jobs share."""
