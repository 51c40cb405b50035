"""The index: where messages with a key stand in the log."""
