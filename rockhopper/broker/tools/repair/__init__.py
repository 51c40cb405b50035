"""The tools that write: rebuild queues and index, repair a log, back up and restore."""
