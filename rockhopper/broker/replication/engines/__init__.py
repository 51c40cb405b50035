"""Consensus engines, which decide elections: etcd, Kubernetes, a fixed set, and common code."""
