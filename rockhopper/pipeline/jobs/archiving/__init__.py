"""Archiving: topics to Parquet files, incrementally, each message once."""
