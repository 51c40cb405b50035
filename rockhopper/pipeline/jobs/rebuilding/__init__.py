"""Rebuild consume queues and index files from the commit log."""
