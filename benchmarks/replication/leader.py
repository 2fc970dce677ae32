"""What an append costs the leader's bookkeeping: its epoch, and its high watermark twice.

Run: python benchmarks/replication/leader.py
"""

from collections.abc import Callable
from time import perf_counter

from waystation.model.ids import BrokerEpoch, LeaderEpoch, NodeId
from waystation.model.offsets import Offset
from waystation.replication.epochs import LeaderEpochs
from waystation.replication.leader import LeaderState

CALLS, ROUNDS = 100_000, 9
EPOCH, LIFE = LeaderEpoch(7), BrokerEpoch(1)


def cost_ns(call: Callable[[Offset], object]) -> float:
    """Nanoseconds per call, the best round counting, offsets rising as they do in a log."""
    offset, best = 0, float("inf")
    for _ in range(ROUNDS):
        began = perf_counter()
        for offset in range(offset, offset + CALLS):  # noqa: B020, the log goes on
            call(Offset(offset))
        best = min(best, perf_counter() - began)
    return best / CALLS * 1e9


def leader_of(replicas: int) -> LeaderState:
    """A leader whose followers are far ahead, so that its own end decides."""
    nodes = [NodeId(n) for n in range(replicas)]
    state = LeaderState(EPOCH, nodes, 1, "disk", leader=nodes[0])
    for node in nodes[1:]:
        state.on_follower(node, LIFE, Offset(1 << 60), Offset(1 << 60))
    return state


if __name__ == "__main__":
    epochs = LeaderEpochs()
    print(f"assign the epoch       {cost_ns(lambda at: epochs.assign(EPOCH, at)):5.0f} ns")
    for replicas in (1, 3):
        state = leader_of(replicas)
        took = cost_ns(lambda at, state=state: state.on_local(at, at))
        print(f"on_local, {replicas} in sync    {took:5.0f} ns")
