"""The index: log offsets of messages by key."""
