"""How long replicas wait for each other. Safety depends on none of these times."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """All times in milliseconds of a monotonic clock."""

    lease_ms: int = 4000
    beat_interval_ms: int = 250
    silence_ms: int = 1000
    """After so long a silence a master may be gone, and a follower does not count."""
    gone_ms: int = 500
    """A follower without a connection for so long leaves the in-sync set."""
    catch_up_ms: int = 3000
    """A follower that lags and makes no progress for so long leaves as well."""
    connection_ms: int = 3000
    """A connection that is silent for so long is closed."""
    missed_ms: int = 2500
    """The time within which a running replica tells the engine that it lost its master."""
    give_up_ms: int = 5000
    """How long a master that cannot confirm anything keeps the lease while another may lead."""
    give_up_ms_max: int = 60_000
    """The upper limit of this time, which doubles each time the master gives up."""
    reconnect_ms: int = 200
    rank_ms: int = 150
    """How much longer a candidate waits for each candidate with a better rank."""
    rank_spread_ms: int = 30
    first_start_ms: int = 5000
    """How long a set without a state waits for replicas with a longer log."""
    read_interval_ms: int = 10_000
    """How often a replica with a recent view reads the engine.

    The watch reports every change, unless its connection died silently.
    """
    seek_interval_ms: int = 1000
    """The same while the replica neither leads nor is connected to a master."""
    power_cut_ms: int = 20_000
    """How long all replicas must be unclean before one of them leads at the risk of loss.

    It is longer than an engine keeps an announcement, so every announcement is newer than its
    start.
    """

    @property
    def renew_interval_ms(self) -> int:
        return self.lease_ms * 3 // 10

    @property
    def lease_usable_ms(self) -> int:
        """How long a renewed lease counts, from the time of the request."""
        return self.lease_ms * 2 // 3
