"""Producers, those who end what they prepared, and an operator: all of them impatient.

Each does one small thing when it is its turn: sends, sends again what was not answered, gives
up or dies.  Answers come late, twice or never.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.transactions.partitions import Partition, Tag, Write
from waystation.model.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadingError,
    InvalidTxnStateError,
    NotCoordinatorError,
    TransactionAbortableError,
    WaystationError,
)
from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition
from waystation.transactions.commands import (
    Add,
    Added,
    End,
    Ended,
    Init,
    Initialised,
    Prepare,
    Prepared,
    TransactionOutcome,
)

if TYPE_CHECKING:
    from tests.transactions.life import Life

RETRY_MS = 300
_AGAIN = (ConcurrentTransactionsError, CoordinatorLoadingError, NotCoordinatorError)


class Question:
    """A request that is sent until it is answered; only the first answer counts.

    In the classic flow nothing tells an ``End`` from that of the transaction before: what makes
    it safe is that a client's requests come in order.  There, and only there, a copy that comes
    after the answer was heard is lost.
    """

    def __init__(
        self,
        life: "Life",
        event: str,
        command: Any,
        told: Callable[[Any], None],
        *,
        in_order: bool = False,
    ) -> None:
        self._life, self._event, self._command, self._told = life, event, command, told
        self._in_order = in_order
        self._answered = False
        self.send()

    def send(self) -> None:
        self._sent_at = self._life.desk.now
        self._life.ask(self._event, self._command, self._answer, self._may_arrive)

    def _may_arrive(self) -> bool:
        return not (self._in_order and self._answered)

    def nudge(self) -> None:
        if self._life.desk.now - self._sent_at > RETRY_MS:
            self.send()

    def _answer(self, answer: object) -> None:
        if self._answered:
            return
        if isinstance(answer, _AGAIN):
            return  # asked again in a while
        self._answered = True
        self._told(answer)


class Client:
    """One instance of a transactional producer, of the classic flow or of KIP-890's."""

    def __init__(self, life: "Life", name: str, instance: int, modern: bool) -> None:
        self.life, self.name, self.instance, self.modern = life, name, instance, modern
        self.is_over = False
        self.who = ProducerId(-1), ProducerEpoch(-1)
        self.number = 0
        self._question: Question | None = None
        self._doubtful = self._handed_over = False
        self._reset()
        self._init()

    @property
    def tag(self) -> Tag:
        return Tag(self.instance, self.number)

    @property
    def is_idle(self) -> bool:
        """Whether it could stop now without leaving anything behind."""
        return self.is_over or (self._question is None and not self._begun)

    def act(self) -> None:
        """Do the next small thing."""
        if self.is_over:
            return
        if self._question is not None:
            self._question.nudge()
        elif not self._begun:
            if not self.life.calm:
                self._begin_or_recover()
        elif self._failed or self.life.chance.random() < 0.03:
            self._end(commit=False)
        elif self._plan:
            self._write(self._plan[0])
        elif self._unanswered:
            self._write(self.life.chance.choice(self._unanswered))
        elif (
            self.modern and self.life.chance.random() < self.life.prepares and not self._handed_over
        ):
            self._prepare()
        else:
            self._end(commit=self.life.chance.random() < 0.8)

    # --- becoming somebody --------------------------------------------------------------------

    def _init(self, was: tuple[ProducerId, ProducerEpoch] | None = None) -> None:
        known = was or (ProducerId(-1), ProducerEpoch(-1))
        command = Init(self.name, self.life.timeout_ms, *known)
        self._ask("init", command, self._initialised)

    def _initialised(self, answer: Initialised) -> None:
        self.life.witness.named(self.instance, (answer.producer_id, answer.epoch))
        self.who = answer.producer_id, answer.epoch
        self._reset()

    def _reset(self) -> None:
        self.number += 1
        self._begun = self._failed = False
        self._plan: list[tuple[Partition, Write]] = []
        self._unanswered: list[tuple[Partition, Write]] = []
        self._added: set[TopicPartition] = set()
        self._question = None

    # --- a transaction ------------------------------------------------------------------------

    def _begin_or_recover(self) -> None:
        if self.life.chance.random() < 0.1 and not self._handed_over:
            self._init(self.who)
        else:
            self._begin()

    def _begin(self) -> None:
        chance = self.life.chance
        self._begun = True
        partitions = chance.sample(list(self.life.partitions.values()), chance.randint(1, 3))
        self._plan = [
            (chance.choice(partitions), Write(self.tag, number))
            for number in range(chance.randint(1, 4))
        ]

    def _write(self, what: tuple[Partition, Write]) -> None:
        partition, write = what
        if not self.modern and partition.name not in self._added:
            some = frozenset([partition.name])
            told = self._partition_added(partition.name)
            self._ask("add", Add(self.name, *self.who, some), told)
            return
        if self._plan and what == self._plan[0]:
            self._unanswered.append(self._plan.pop(0))
        self.life.produce(self, partition, write, self._acked(self.number, what))

    def _partition_added(self, name: TopicPartition) -> Callable[[Any], None]:
        def told(answer: Added) -> None:
            assert not any(answer.errors.values()), answer
            self._added.add(name)

        return told

    def _acked(self, number: int, what: tuple[Partition, Write]) -> Callable[[Any], None]:
        partition, write = what

        def told(answer: object) -> None:
            if number != self.number or self.is_over or what not in self._unanswered:
                return
            if isinstance(answer, WaystationError):
                self._failed = self._failed or not isinstance(answer, _AGAIN)
                return
            self._unanswered.remove(what)
            self.life.witness.acked(write.tag, partition, write)

        return told

    def _end(self, commit: bool) -> None:
        if self._handed_over:
            self.die()  # its transaction is another's now
            return
        tag, self._doubtful = self.tag, bool(self._unanswered)
        command = End(self.name, *self.who, commit, self.modern)

        def told(answer: Ended) -> None:
            self.life.witness.ended(tag, commit)
            if self.modern:
                self.who = answer.producer_id, answer.epoch
                self.life.witness.named(self.instance, self.who)
            doubtful = self._doubtful
            self._reset()
            if doubtful and not self.modern:
                self._init(self.who)  # what was sent and not answered must not arrive any more

        self._ask("end", command, told, self._not_ended)

    def _not_ended(self, error: WaystationError) -> None:
        if isinstance(error, InvalidTxnStateError) and self.modern and not self._failed:
            self._failed = True  # it took too long: aborted already, and so must we
        elif isinstance(error, InvalidTxnStateError) and not self._added:
            self._init()  # nothing had begun
        else:
            self.die()

    def _prepare(self) -> None:
        tag, who = self.tag, self.who

        def told(answer: Prepared) -> None:
            assert answer == Prepared()
            self.life.entrust(Holder(self.life, self.name, who, tag))
            self._reset()
            self._handed_over = True  # what it writes now must not count

        self._ask("prepare", Prepare(self.name, *who), told)

    # --- parts --------------------------------------------------------------------------------

    def die(self) -> None:
        self.is_over = True
        self._question = None

    def _ask(
        self,
        event: str,
        command: Any,
        told: Callable[[Any], None],
        failed: Callable[[WaystationError], None] | None = None,
    ) -> None:
        def answered(answer: object) -> None:
            if self.is_over:
                return
            self._question = None
            if isinstance(answer, TransactionAbortableError):
                self._failed = True
            elif isinstance(answer, WaystationError):
                (failed or self._refused)(answer)
            else:
                told(answer)

        in_order = not self.modern
        self._question = Question(self.life, event, command, answered, in_order=in_order)

    def _refused(self, _error: WaystationError) -> None:
        """Fenced, or too slow; a program would be restarted."""
        self.die()


class Holder:
    """Ends a prepared transaction, from elsewhere, and asks again and again what became of it."""

    def __init__(
        self, life: "Life", name: str, who: tuple[ProducerId, ProducerEpoch], tag: Tag
    ) -> None:
        self.life, self.name, self._who, self._tag = life, name, who, tag
        self._commit = life.chance.random() < 0.7
        self._patience = life.chance.randint(0, 60)
        self._question: Question | None = None
        self._repeats = life.chance.randint(0, 4)
        self.fate: bool | None = None
        life.witness.outcomes[tag] = name, who

    @property
    def is_over(self) -> bool:
        return self.fate is not None and self._question is None and not self._repeats

    def act(self) -> None:
        if self._question is not None:
            self._question.nudge()
        elif self._patience > 0 and not self.life.calm:
            self._patience -= 1
        elif self.fate is None:
            self._end()
        elif self._repeats:
            self._repeats -= 1
            self._patience = self.life.chance.randint(0, 80)
            self._ask_again()

    def _end(self) -> None:
        self.life.witness.may_end(self.name, self._who, self._commit)
        bumps = self.life.chance.random() < 0.7

        def told(answer: object) -> None:
            self._question = None
            if isinstance(answer, InvalidTxnStateError):
                assert self._commit, f"{self._tag} cannot be aborted: {answer}"
                self._settled(False)  # by the operator, or by the limit
                return
            assert isinstance(answer, Ended), f"{self._tag} could not be ended: {answer!r}"
            self._settled(self._commit)

        command = End(self.name, *self._who, self._commit, bumps)
        self._question = Question(self.life, "end", command, told)

    def _settled(self, commit: bool) -> None:
        self.fate = commit
        self.life.witness.ended(self._tag, commit)

    def _ask_again(self) -> None:
        if self.life.chance.random() < 0.5:
            self._ask_outcome()
            return
        commit = self.life.chance.random() < 0.5

        def told(answer: object) -> None:
            self._question = None
            expected = Ended if commit == self.fate else InvalidTxnStateError
            assert isinstance(answer, expected), f"{self._tag}, {self.fate}: {answer!r}"

        command = End(self.name, *self._who, commit, True)
        self._question = Question(self.life, "end", command, told)

    def _ask_outcome(self) -> None:
        def told(answer: object) -> None:
            self._question = None
            self.check(answer)

        self._question = Question(self.life, "outcome", (self.name, *self._who), told)

    def check(self, answer: object) -> None:
        assert isinstance(answer, TransactionOutcome), answer
        words = ("committing", "committed") if self.fate else ("abort",)
        assert answer.state.startswith(words), f"{self._tag}, {self.fate}: {answer}"
