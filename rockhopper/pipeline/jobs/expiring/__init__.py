"""Remove files with old messages from an archive."""
