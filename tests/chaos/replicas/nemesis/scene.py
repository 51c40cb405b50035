"""Scene: what faults are made on, and who is meant by *master* or *follower* just now."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from tests.chaos.replicas.nemesis.schedule import Act
from tests.chaos.replicas.observing import Observer
from tests.chaos.replicas.set_of_replicas import REPLICAS, ReplicaProcess, SetOfReplicas

Make = Callable[[Act], Awaitable[None]]
"""Makes a fault, and mends it when the act is over."""


@dataclass(frozen=True)
class Scene:
    """One set under faults."""

    replicas: SetOfReplicas
    observer: Observer
    dice: random.Random

    def target(self, act: Act) -> int:
        """Which replica an act is about."""
        master = self.observer.master or self.dice.choice(REPLICAS)
        if act.target == "master":
            return master
        return self.dice.choice([number for number in REPLICAS if number != master])

    def process(self, act: Act) -> ReplicaProcess:
        """The same, as its process."""
        return self.replicas.replicas[self.target(act)]

    def other(self, number: int) -> int:
        """Another replica."""
        return self.dice.choice([each for each in REPLICAS if each != number])


Faults = Mapping[str, Make]
"""By the kinds of acts that they are for."""
