"""How long replicas wait for each other. None of it decides about safety."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """All of it in milliseconds of a clock that never goes back."""

    lease_ms: int = 4000
    beat_interval_ms: int = 250
    silence_ms: int = 1000
    """Without a word for so long, a master may be gone, and a follower is not counted on."""
    gone_ms: int = 500
    """Without a connection for so long, a follower leaves the in-sync set."""
    catch_up_ms: int = 3000
    """Without progress for so long while there is something to fetch, it leaves as well."""
    connection_ms: int = 3000
    """Without a word for so long, a connection is given up."""
    missed_ms: int = 2500
    """Within so long a replica that runs, and is cut off from its master, has told the engine."""
    give_up_ms: int = 5000
    """So long a master that nobody confirms anything to keeps the lease, if another may lead."""
    give_up_ms_max: int = 60_000
    """The same after it was elected again and again and could not serve."""
    reconnect_ms: int = 200
    rank_ms: int = 150
    """Each candidate lets the better ones begin so much earlier."""
    rank_spread_ms: int = 30
    first_start_ms: int = 5000
    """How long a set without any state waits for those who have a longer log."""
    read_interval_ms: int = 10_000
    """How often a replica without a view of less than this age reads the engine: the watch tells
    it of every change, unless the connection died without a word."""
    seek_interval_ms: int = 1000
    """The same while it neither leads nor is connected to a master."""
    power_cut_ms: int = 20_000
    """For how long all must be there, and unclean, before one of them leads although it may lack
    something: longer than an engine keeps what a replica has announced, so that all of it was
    announced since."""

    @property
    def renew_interval_ms(self) -> int:
        return self.lease_ms * 3 // 10

    @property
    def lease_usable_ms(self) -> int:
        """How long after it was asked for a renewed lease is taken to last."""
        return self.lease_ms * 2 // 3
