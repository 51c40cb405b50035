"""Engines that elections ask: etcd, Kubernetes, a fixed set, and what they share."""
