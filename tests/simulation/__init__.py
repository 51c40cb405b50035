"""Simulated replica sets without sockets and disks: machines, network, engine and time from a seed.

python -m tests.simulation [--seeds 1000] [--first 0] [--progress FILE]
"""
