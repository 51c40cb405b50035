"""Transactional messages: half messages, commits and rollbacks, and checks with producers."""
