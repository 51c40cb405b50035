"""The store of one broker: the commit log, and the queues and index derived from it."""
