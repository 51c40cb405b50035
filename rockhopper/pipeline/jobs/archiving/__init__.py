"""Archive topics in Parquet files, incrementally, each message once."""
