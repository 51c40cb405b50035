"""Replication: who of a set's replicas leads, what is confirmed, and who may lead next."""
