"""The data source ``rocketmq``: read topics over the network, as batches and as streams."""
