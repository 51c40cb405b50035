"""The engine of consensus over Leases of Kubernetes.

api.py      the API server, as a pod asks it, and what went wrong in words
leases.py   the Leases of a set: where a RecordEngine keeps it
pod_role.py the label by which a Service finds the master
"""
