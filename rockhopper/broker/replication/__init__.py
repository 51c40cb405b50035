"""Replication of a broker: election, log shipping, replicated state, and the work of each role."""
