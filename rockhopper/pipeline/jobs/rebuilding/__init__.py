"""Rebuilding: consume queues and index files from the segments of the commit log."""
