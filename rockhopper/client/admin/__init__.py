"""What operators ask for: topics, groups, dead letters, single messages."""
