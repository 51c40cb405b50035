"""What the broker knows beside messages, in files: topics, groups, offsets."""
