"""Replay messages from Parquet files into topics, each once."""
