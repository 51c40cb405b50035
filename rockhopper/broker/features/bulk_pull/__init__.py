"""Bulk pulls: reading many messages with one request, for jobs."""
