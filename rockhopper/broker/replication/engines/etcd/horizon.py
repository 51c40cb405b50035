"""The newest state of etcd that was seen, to detect answers from an older state.

A linearizable answer is never older than what was seen before its request was sent. An older one
comes from a cluster that was restored from a backup, or from another cluster.
"""

from rockhopper.broker.replication.engines.etcd.forms import Header


class FromThePastError(Exception):
    """An answer is older than one that arrived before its request was sent."""


class Horizon:
    """The largest term and revision of one cluster that this process has seen."""

    def __init__(self) -> None:
        self.seen = Header()

    def record(self, header: Header, departed: Header) -> None:
        """Record the header of an answer; its request was sent when ``seen`` was *departed*.

        Raises:
            FromThePastError: the answer is outdated or belongs to another cluster.
        """
        if departed.cluster_id not in (0, header.cluster_id):
            raise FromThePastError(
                f"it belongs to cluster {header.cluster_id}, not to {departed.cluster_id} as before"
            )
        behind = header.raft_term < departed.raft_term or header.revision < departed.revision
        if behind:
            raise FromThePastError(
                f"it is at term {header.raft_term}, revision {header.revision}, behind term "
                f"{departed.raft_term}, revision {departed.revision}, which were seen before: "
                "was it restored from a backup? If that was intended, restart this broker"
            )
        seen = self.seen
        self.seen = Header(
            cluster_id=header.cluster_id,
            revision=max(header.revision, seen.revision),
            raft_term=max(header.raft_term, seen.raft_term),
        )
