"""Replicas of a broker: who leads, what is shipped, and what a role does."""
