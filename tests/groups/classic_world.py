"""Members of all sorts around one coordinator, by a seed: they join, forget, lie, die and return.

After every event all ``INVARIANTS`` hold.  What the world believes, it knows from answers and from
the log alone; the machine's inside is looked at only to find who waits in it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.groups.coordinator import Answer, Coordinator
from waystation.groups.classic import ClassicGroup
from waystation.groups.commands import (
    Commit,
    Committed,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaving,
    OffsetToCommit,
    Sync,
    Synced,
)
from waystation.groups.machine import Groups
from waystation.groups.records import ClassicGroupForgotten, ClassicGroupStored
from waystation.model.errors import (
    FencedInstanceIdError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberError,
    WaystationError,
)

GROUPS = ("g", "h")
PROTOCOLS = ("range", "sticky", "own")
LONGEST_WAIT_MS = 700_000
PAUSES_MS, PAUSE_WEIGHTS = (1, 100, 3_000, 11_000, 65_000), (20, 20, 5, 1, 1)


@dataclass(eq=False)
class Client:
    """One consumer; ``joined`` is what it believes to be in."""

    group: str
    name: str
    is_static: bool
    requires_id: bool
    may_skip: bool
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    member_id: str = ""
    joined: Joined | None = None
    is_synced: bool = False
    waits: bool = False
    lives: int = 0

    @property
    def instance_id(self) -> str | None:
        return self.name if self.is_static else None

    def forget(self) -> None:
        """Start anew, as after a crash: answers to the former life are not heard."""
        self.member_id, self.joined, self.is_synced, self.waits = "", None, False, False
        self.lives += 1


@dataclass(eq=False)
class Question:
    """What was asked, by whom, in which of its lives."""

    client: Client | None
    life: int
    command: Join | Sync | Heartbeat | Leave | Commit | str
    answer: Answer


class World:
    """A run, and what is known of it from outside."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.events = self.offset = 0
        self.zombies: list[tuple[str, str, str | None, int]] = []
        self.fenced: set[str] = set()
        self.waiting: dict[Answer, Question] = {}
        self.generations: dict[ClassicGroup, int] = {}
        self.told: dict[tuple[ClassicGroup, int], tuple[object, ...]] = {}
        self.fresh: list[Joined] = []  # answers that told of a new generation just now
        self.seen: dict[str, int] = {}
        pick = self.random.choice
        self.here = Coordinator(
            group_initial_rebalance_delay_ms=pick([0, 3_000]), group_max_size=pick([4, 1_000])
        )
        self.clients = [
            Client(
                group,
                f"{'s' if number % 2 else 'd'}{number}",
                is_static=bool(number % 2),
                requires_id=pick([True, True, False]),
                may_skip=pick([True, False]),
                protocols=self._protocols(),
                session_ms=pick([10_000, 200_000]),
            )
            for group in GROUPS
            for number in range(5)
        ]
        self.committed: dict[str, dict[tuple[str, int], int]] = {group: {} for group in GROUPS}
        self.highest = dict.fromkeys(GROUPS, 0)

    def run(self, events: int) -> None:
        """Let ``events`` happen, then let time pass until nobody can wait any more."""
        for _ in range(events):
            if self.random.random() < 0.2:
                self.wait(self.random.choices(PAUSES_MS, PAUSE_WEIGHTS)[0])
            else:
                self.happen(self._choose())
        self.wait(2 * LONGEST_WAIT_MS)
        assert not self.waiting, f"seed {self.seed}: never answered: {self._waiting_commands()}"

    def wait(self, ms: int) -> None:
        """Let time pass; each moment at which something falls due is an event."""
        until = self.here.now + ms
        while (deadline := self.here.machine.next_deadline()) is not None and deadline <= until:
            due_in_ms = deadline - self.here.now
            self.happen(lambda ms=due_in_ms: self.here.wait(ms))
        self.happen(lambda: self.here.wait(until - self.here.now))

    def happen(self, event: Callable[[], object]) -> None:
        self.events += 1
        before = len(self.here.log)
        try:
            event()
            self._read_log(before)
            self._hear_answers()
            for invariant in INVARIANTS:
                invariant(self)
            if self.events % 40 == 0:
                replay_gives_the_same(self, self.here.replayed())
        except Exception as failure:
            failure.add_note(f"seed {self.seed}, event {self.events}")
            raise

    # --- what happens -------------------------------------------------------------------------

    def _choose(self) -> Callable[[], object]:
        client = self.random.choice(self.clients)
        if (dice := self.random.random()) < 0.9:
            return self._zombie if dice < 0.1 else lambda: self._natural(client)
        odd: list[Callable[[], object]] = [
            lambda: self._leave(client),
            lambda: self._crash(client),
            lambda: self._crash(client),
            lambda: self._join(client),
            lambda: self._change_protocols(client),
            lambda: self._commit(client.group, "", None, -1),
            self._restart,
            lambda: self._remove_instance(client),
            lambda: self._delete(client.group),
        ]
        return self.random.choice(odd)

    def _natural(self, client: Client) -> None:
        """What a well-behaved client does next."""
        if client.waits:
            return
        if client.joined is None:
            self._join(client)
        elif not client.is_synced:
            self._sync(client, client.joined)
        elif self.random.random() < 0.5:
            self._commit(
                client.group, client.member_id, client.instance_id, client.joined.generation
            )
        else:
            command = Heartbeat(
                client.group, client.joined.generation, client.member_id, client.instance_id
            )
            self._ask(client, command, Groups.heartbeat)

    def _join(self, client: Client) -> None:
        command = Join(
            client.group,
            client.member_id,
            client.instance_id,
            client.name,
            "/host",
            "consumer",
            client.protocols,
            client.session_ms,
            self.random.choice([20_000, 60_000]),
            client.requires_id,
            client.may_skip,
        )
        self._ask(client, command, Groups.join)

    def _sync(self, client: Client, joined: Joined) -> None:
        shares = tuple(
            (member.member_id, share(joined.generation, member.member_id))
            for member in joined.members
        )
        command = Sync(
            client.group,
            joined.generation,
            client.member_id,
            client.instance_id,
            joined.protocol_type,
            joined.protocol,
            shares,
        )
        self._ask(client, command, Groups.sync)

    def _commit(self, group: str, member_id: str, instance_id: str | None, generation: int) -> None:
        self.offset += 1
        position = OffsetToCommit("t", self.random.randrange(3), self.offset, 0, "")
        command = Commit(group, generation, member_id, instance_id, -1, (position,))
        may = self._may_commit(command)
        answer = self._ask(None, command, Groups.commit)
        assert isinstance(answer.value, Committed) <= may, f"taken: {command}"
        if isinstance(answer.value, Committed):
            self.committed[group][position.topic, position.partition] = position.offset

    def _may_commit(self, command: Commit) -> bool:
        """Whether the world knows of nothing against it."""
        if command.generation < 0:
            return self.here.state(command.group_id) in ("Empty", "Dead")
        current = command.generation == self.highest[command.group_id]
        return current and command.member_id not in self.fenced

    def _leave(self, client: Client) -> None:
        command = Leave(client.group, (Leaving(client.member_id, client.instance_id),))
        self._ask(client, command, Groups.leave)
        client.forget()

    def _remove_instance(self, client: Client) -> None:
        command = Leave(client.group, (Leaving("", client.instance_id),))
        self._ask(None, command, Groups.leave)

    def _crash(self, client: Client) -> None:
        client.forget()

    def _zombie(self) -> None:
        """Someone who does not know what has happened since it was told of a generation."""
        if self.zombies:
            group, member_id, instance_id, generation = self.random.choice(self.zombies[-8:])
            if self.random.random() < 0.5:
                self._commit(group, member_id, instance_id, generation)
            else:
                command = Heartbeat(group, generation, member_id, instance_id)
                self._ask(None, command, Groups.heartbeat)

    def _change_protocols(self, client: Client) -> None:
        client.protocols = self._protocols()
        self._join(client)

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        names = self.random.sample(PROTOCOLS, self.random.choice([2, 3, 3]))
        version = self.random.randrange(3)
        return tuple((name, f"{name}{version}".encode()) for name in names)

    def _delete(self, group: str) -> None:
        answer = Answer()
        self.here.take(self.here.machine.delete(self.here.now, group, answer))
        if answer.value is None:
            self.committed[group].clear()

    def _restart(self) -> None:
        replay_gives_the_same(self, self.here.replayed())
        abandoned = self.here.restart()
        assert set(abandoned) == set(self.waiting), "not all who waited were listed"
        for to in abandoned:
            to(NotCoordinatorError("restarted"))
        self.told.clear()
        self.generations.clear()
        self.highest = dict.fromkeys(GROUPS, 0)
        self._read_log(0)
        # Who was replaced in a rebalance that is forgotten was not replaced.
        self.fenced -= {
            member.member_id for group in groups_of(self.here.machine) for member in group.members
        }

    def _ask(
        self,
        client: Client | None,
        command: Join | Sync | Heartbeat | Leave | Commit,
        method: Callable[..., object],
    ) -> Answer:
        machine = self.here.machine
        answer = Answer()
        self.waiting[answer] = Question(client, client.lives if client else 0, command, answer)
        if client is not None:
            client.waits = True
        self.here.take(method(machine, self.here.now, command, answer))  # type: ignore[arg-type]
        return answer

    # --- what is heard ------------------------------------------------------------------------

    def _read_log(self, start: int) -> None:
        for record in self.here.log[start:]:
            match record:
                case ClassicGroupStored(group_id=group, generation=generation):
                    self.highest[group] = max(generation, self.highest[group])
                case ClassicGroupForgotten(group_id=group):
                    self.highest[group] = 0

    def _hear_answers(self) -> None:
        answered = [question for answer, question in self.waiting.items() if answer.is_there]
        for question in answered:
            del self.waiting[question.answer]
            value = question.answer.value
            self.seen[type(value).__name__] = self.seen.get(type(value).__name__, 0) + 1
            if isinstance(value, Joined):
                self._hear_joined(question, value)
            elif isinstance(value, Synced):
                self._hear_synced(question, value)
            client = question.client
            if client is not None and client.lives == question.life:
                client.waits = False
                self._learn(client, question, value)
        self._leaders_were_told()

    def _learn(self, client: Client, question: Question, value: object) -> None:
        match value:
            case MemberIdRequiredError():
                client.member_id = value.member_id
            case Joined():
                client.member_id, client.joined, client.is_synced = value.member_id, value, False
                self.zombies.append(
                    (client.group, value.member_id, client.instance_id, value.generation)
                )
            case Synced():
                client.is_synced = True
            case UnknownMemberError() | FencedInstanceIdError() | GroupFullError():
                client.forget()
            case IllegalGenerationError() | RebalanceInProgressError():
                client.joined = None
            case WaystationError() if isinstance(question.command, Join):
                if isinstance(value, InconsistentProtocolError):
                    client.protocols = self._protocols()

    def _hear_joined(self, question: Question, joined: Joined) -> None:
        """Answers of one generation agree on its protocol and its leader."""
        assert isinstance(question.command, Join)
        group = self.here.machine._groups[question.command.group_id]
        assert isinstance(group, ClassicGroup)
        facts = (joined.protocol_type, joined.protocol, identity(joined.leader))
        if joined.generation > self.highest[question.command.group_id] or self.fresh:
            self.fresh.append(joined)
        known = self.told.setdefault((group, joined.generation), facts)
        assert facts == known, f"generation {joined.generation} is {known} and {facts}"
        group_id = question.command.group_id
        self.highest[group_id] = max(joined.generation, self.highest[group_id])
        assert all(one.subscription for one in joined.members), "a member lacks the protocol"
        leads = joined.leader == joined.member_id
        assert leads == bool(joined.members), "only the leader is told of the others"
        if question.command.instance_id is not None and not question.command.member_id:
            prefix = f"{question.command.instance_id}-"
            self.fenced |= {
                member_id
                for of_group, member_id, _, _ in self.zombies
                if of_group == group_id
                and member_id.startswith(prefix)
                and member_id != joined.member_id
            }

    def _hear_synced(self, question: Question, synced: Synced) -> None:
        """A member is given what the leader meant for it in its generation, or nothing."""
        command = question.command
        assert isinstance(command, Sync)
        meant = share(command.generation, command.member_id)
        assert synced.assignment in (b"", meant), f"{synced.assignment!r} instead of {meant!r}"
        assert command.protocol == synced.protocol

    def _leaders_were_told(self) -> None:
        """A generation is told to its leader first of all, or nobody would share out."""
        for joined in self.fresh:
            told = [one.member_id for one in self.fresh if one.generation == joined.generation]
            assert joined.leader in told, f"{joined.leader} leads, but only {told} were told"
        self.fresh.clear()

    def _waiting_commands(self) -> list[object]:
        return [question.command for question in self.waiting.values()]


def share(generation: int, member_id: str) -> bytes:
    """What a leader gives to a member: bytes that show for whom they are."""
    return f"{generation}|{identity(member_id)}".encode()


def identity(member_id: str) -> str:
    """Static members are the same under every member id."""
    return member_id.rsplit("-", 1)[0] if member_id.startswith("s") else member_id


def groups_of(machine: Groups) -> list[ClassicGroup]:
    return [group for group in machine._groups.values() if isinstance(group, ClassicGroup)]


# --- what always holds ----------------------------------------------------------------------------


def one_leader_who_is_a_member(world: World) -> None:
    for group in groups_of(world.here.machine):
        if group.members:
            assert group.members.leader in group.members, f"{group.members.leader} leads"
        else:
            assert group.members.leader is None


def no_two_members_with_one_instance_id(world: World) -> None:
    for group in groups_of(world.here.machine):
        names = [member.instance_id for member in group.members if member.instance_id]
        assert len(names) == len(set(names)), names


def generations_never_go_back(world: World) -> None:
    for group in groups_of(world.here.machine):
        before = world.generations.get(group, 0)
        assert group.generation >= before, f"{before} -> {group.generation}"
        world.generations[group] = group.generation
    stored: dict[str, int] = {}
    for record in world.here.log:
        match record:
            case ClassicGroupStored():
                assert record.generation >= stored.get(record.group_id, 0)
                stored[record.group_id] = record.generation
            case ClassicGroupForgotten():
                stored.pop(record.group_id, None)


def everyone_unanswered_waits_in_the_machine(world: World) -> None:
    inside = [
        to
        for group in groups_of(world.here.machine)
        for to in (*group._joining.values(), *group._syncing.values())
    ]
    assert set(inside) == set(world.waiting), world._waiting_commands()
    assert len(inside) == len(set(inside))


def every_wait_has_an_end(world: World) -> None:
    for group in groups_of(world.here.machine):
        if group._joining or group._syncing:
            deadline = group.next_deadline()
            assert deadline is not None, f"{group.state} for ever"
            assert deadline <= world.here.now + LONGEST_WAIT_MS


def the_next_deadline_is_the_earliest(world: World) -> None:
    machine = world.here.machine
    deadlines = [machine._commits.sweep_at, *(one.next_deadline() for one in groups_of(machine))]
    assert machine.next_deadline() == min(at for at in deadlines if at is not None)
    assert machine.next_deadline() > world.here.now, "left undone"  # type: ignore[operator]


def committed_offsets_stay(world: World) -> None:
    for group, offsets in world.committed.items():
        assert world.here.offsets(group) == offsets


def a_group_at_rest_is_as_remembered(world: World) -> None:
    last = last_stored(world)
    for group in groups_of(world.here.machine):
        if group.state == "Stable":
            assert durable(group) == last[group.group_id]
        assert group.state == "Stable" or not group.members or group.next_deadline() is not None


INVARIANTS = (
    one_leader_who_is_a_member,
    no_two_members_with_one_instance_id,
    generations_never_go_back,
    everyone_unanswered_waits_in_the_machine,
    every_wait_has_an_end,
    the_next_deadline_is_the_earliest,
    committed_offsets_stay,
    a_group_at_rest_is_as_remembered,
)


def last_stored(world: World) -> dict[str, tuple[object, ...]]:
    last: dict[str, tuple[object, ...]] = {}
    for record in world.here.log:
        match record:
            case ClassicGroupStored():
                facts = record.generation, record.protocol, record.leader, record.members
                last[record.group_id] = (record.protocol_type, *facts)
            case ClassicGroupForgotten():
                last.pop(record.group_id, None)
    return last


def durable(group: ClassicGroup) -> tuple[object, ...]:
    members = tuple(one.stored(group.protocol, one.assignment) for one in group.members)
    facts = group.generation, group.protocol, group.members.leader, members
    return group.protocol_type, *facts


def replay_gives_the_same(world: World, replayed: Groups) -> None:
    """A machine that reads the log knows what the living one has made known."""
    assert {group.group_id: durable(group) for group in groups_of(replayed)} == last_stored(world)
    living = sorted(world.here.machine.committed_offsets())
    assert sorted(replayed.committed_offsets()) == living
