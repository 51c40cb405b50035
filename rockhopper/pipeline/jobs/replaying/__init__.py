"""Replaying: messages from Parquet files back into topics, each once."""
