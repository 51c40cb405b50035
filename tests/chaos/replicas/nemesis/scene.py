"""Scene: the set under faults, and which replica is currently *master* or *follower*."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.set_of_replicas import REPLICAS, ReplicaProcess, SetOfReplicas

Make = Callable[[Act], Awaitable[None]]
"""Makes a fault, and repairs it when the act is over."""


@dataclass(frozen=True)
class Scene:
    """One set under faults."""

    replicas: SetOfReplicas
    observer: Observer
    dice: random.Random
    cast: dict[str, int] = field(default_factory=dict)
    """The replicas with fixed names; see ``begin``."""

    def begin(self) -> None:
        """Assign the names *then-master*, *first* and *second*."""
        master = self.observer.master or REPLICAS[0]
        others = [number for number in REPLICAS if number != master]
        self.cast.update(zip(("then-master", "first", "second"), (master, *others), strict=True))

    def target(self, act: Act) -> int:
        """Return the replica that an act affects."""
        if act.target in self.cast:
            return self.cast[act.target]
        master = self.observer.master or self.dice.choice(REPLICAS)
        if act.target == "master":
            return master
        return self.dice.choice([number for number in REPLICAS if number != master])

    def process(self, act: Act) -> ReplicaProcess:
        """Return the process of that replica."""
        return self.replicas.replicas[self.target(act)]

    def other(self, number: int) -> int:
        """Return another replica."""
        return self.dice.choice([each for each in REPLICAS if each != number])


Faults = Mapping[str, Make]
"""The makers of faults, by kind of act."""
