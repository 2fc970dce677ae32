"""From measured costs to machines: plain arithmetic, every term of which the page shows.

CPU per MB is what can be carried over from a small machine to many large ones: it does not depend
on who else had the cores.  Rates can not, and are not used but for one partition's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_DAY_S = 86_400
THROTTLE_MB_PER_S = 50.0  # of each machine, while what a lost one held is copied
LARGEST_PARTITION_GB = 500.0  # three hours at the throttle
PARTITION_USE = 0.25  # of what one partition takes at most


REPLICAS = 3


@dataclass(frozen=True)
class Goal:
    """What is wanted: so many messages, kept so long on three replicas."""

    messages_per_s: float = 1_000_000
    message_bytes: int = 1_024
    days: float = 7
    readers: int = 2  # groups that read everything, besides the followers

    @property
    def mb_per_s(self) -> float:
        """What producers send, in MB of 10^6 bytes."""
        return self.messages_per_s * self.message_bytes / 1e6

    @property
    def stored_tb(self) -> float:
        """What all replicas hold together."""
        return self.mb_per_s * self.days * _DAY_S * REPLICAS / 1e6

    @property
    def into_brokers(self) -> float:
        """MB/s from producers and leaders, which is what disks take."""
        return self.mb_per_s * REPLICAS

    @property
    def out_of_brokers(self) -> float:
        """MB/s to followers and readers."""
        return self.mb_per_s * (REPLICAS - 1 + self.readers)


@dataclass(frozen=True)
class Costs:
    """CPU in ms for each MB of values, over all brokers; and what one partition takes."""

    write: float  # to three replicas, acks=all
    read: float  # each reader
    partition_mb_per_s: float

    def per_mb(self, goal: Goal) -> float:
        """CPU in ms for each MB that is written once and read by everybody."""
        return self.write + self.read * goal.readers

    def cores(self, goal: Goal) -> float:
        """Cores that work all the time."""
        return goal.mb_per_s * self.per_mb(goal) / 1_000


@dataclass(frozen=True)
class Machine:
    """What is bought, and how much of it may be used, so that a lost one and a bad hour fit in."""

    name: str
    cores: int
    memory_gb: float
    disks: int
    disk_tb: float
    disk_mb_per_s: float  # what one disk takes in a stream beside readers
    network_gb_per_s: float  # each way, in 10^9 bits
    use: float = 0.5  # of cores, of the disks' speed and of the network
    fill: float = 0.8  # of the disks' space, and of memory by the page cache


@dataclass(frozen=True)
class Needed:
    """How many machines each resource asks for; the largest decides."""

    cores: int
    space: int
    disk_speed: int
    network: int
    replicas: int = REPLICAS  # on different machines

    @property
    def machines(self) -> int:
        """What fulfils all, and one more that may fail."""
        return max(self.cores, self.space, self.disk_speed, self.network, self.replicas) + 1


@dataclass(frozen=True)
class Plan:
    """A cluster that fulfils a goal."""

    needed: Needed
    processes: int  # of one machine
    in_mb_per_s: float  # of one machine
    out_mb_per_s: float
    cached_s: float  # how far behind readers are still served from memory
    partitions: int
    partition_gb: float
    replicas_each: float  # partition replicas of one process
    refill_h: float

    @property
    def machines(self) -> int:
        """All of them."""
        return self.needed.machines


def plan(goal: Goal, costs: Costs, machine: Machine) -> Plan:
    """What ``goal`` takes on machines of this kind."""
    needed = _needed(goal, costs, machine)
    machines = needed.machines
    processes = math.ceil(costs.cores(goal) / machine.use / machines)
    partitions = _partitions(goal, costs, machines * processes)
    entering = goal.into_brokers / machines
    copied_mb = goal.stored_tb * 1e6 / machines
    return Plan(
        needed,
        processes,
        in_mb_per_s=entering,
        out_mb_per_s=goal.out_of_brokers / machines,
        cached_s=machine.memory_gb * 1_000 * machine.fill / entering,
        partitions=partitions,
        partition_gb=goal.stored_tb * 1_000 / REPLICAS / partitions,
        replicas_each=partitions * REPLICAS / (machines * processes),
        refill_h=copied_mb / (THROTTLE_MB_PER_S * (machines - 1)) / 3_600,
    )


def _needed(goal: Goal, costs: Costs, machine: Machine) -> Needed:
    space_tb = machine.disks * machine.disk_tb * machine.fill
    disks_mb_per_s = machine.disks * machine.disk_mb_per_s * machine.use
    link_mb_per_s = machine.network_gb_per_s * 1_000 / 8 * machine.use
    return Needed(
        cores=math.ceil(costs.cores(goal) / (machine.cores * machine.use)),
        space=math.ceil(goal.stored_tb / space_tb),
        disk_speed=math.ceil(goal.into_brokers / disks_mb_per_s),
        network=math.ceil(max(goal.into_brokers, goal.out_of_brokers) / link_mb_per_s),
    )


def _partitions(goal: Goal, costs: Costs, processes: int) -> int:
    """Fast enough, small enough to be moved, and the same number for every process."""
    by_speed = goal.mb_per_s / (costs.partition_mb_per_s * PARTITION_USE)
    by_size = goal.stored_tb * 1_000 / REPLICAS / LARGEST_PARTITION_GB
    return math.ceil(max(by_speed, by_size, processes) / processes) * processes
