"""Spark reads and writes topics and store directories (not in this release)."""
