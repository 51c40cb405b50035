"""The data source ``rocketmq``: topics over the network, as batches and as streams."""
