"""The broker's tables in files: topics, groups, offsets and others."""
