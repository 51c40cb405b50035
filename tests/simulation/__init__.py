"""Replica sets without sockets and disks: machines, a network, an engine, time; all from a seed.

python -m tests.simulation [--seeds 1000] [--first 0] [--progress FILE]
"""
