"""Administration: topics, groups, dead letters, search for single messages."""
