"""The consensus engine over Leases of Kubernetes.

api.py      the API server, from within a pod, and readable errors
leases.py   the Leases of a set: the store of a RecordEngine
pod_role.py the label by which a Service finds the master
"""
