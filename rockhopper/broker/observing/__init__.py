"""What the broker tells of itself beside its metrics: statistics and the log."""
