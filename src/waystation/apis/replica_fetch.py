"""Fetch, as a follower asks it: everything up to the log's end, committed or not.

Followers say which of their lives asks, from version 15 on in ``ReplicaState``.  One of ours also
says how far it has flushed, in a tagged field of its own; one that does not has flushed nothing.
In another it says which changes of the cluster it knows of: a copy that it was told to give up,
and does not know of yet, is not taken for the one that it was asked to make since.

The bytes are in ``broker/replica_wire.py``.
"""

from typing import Any

from waystation.apis.call import Call
from waystation.broker.broker import Broker
from waystation.broker.fetch_sessions import FIRST_EPOCH
from waystation.broker.replica_sessions import ReplicaSession
from waystation.broker.replica_wire import Answers, Questions, Told, questions_of
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.model.errors import ErrorCode, StaleBrokerEpochError
from waystation.model.ids import BrokerEpoch, NodeId

_SESSION = "replica session"


def replicas_questions(request: FetchRequest) -> Questions | None:
    """What a follower asks; ``None``: a consumer does."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return questions_of(request, NodeId(state.replica_id), BrokerEpoch(state.replica_epoch))
    if request.replica_id >= 0:
        return questions_of(request, NodeId(request.replica_id), BrokerEpoch(-1))
    return None


def answer_replica(broker: Broker, call: Call[Any], questions: Questions) -> None:
    """HOT: once per fetch of a follower; the reply leaves when there is something to say."""
    try:
        broker.check_life(questions.node, questions.life)
    except StaleBrokerEpochError as error:
        call.reply(FetchResponse(error_code=error.code))
        return
    session = _session(broker, call, questions)
    if isinstance(session, ErrorCode):
        call.reply(FetchResponse(error_code=session))
        return

    def done(told: list[Told]) -> None:
        call.reply(Answers(session.id, told))

    session.acted_on = questions.acted_on
    session.fetch(
        questions.asked, questions.forgotten, questions.max_wait_ms, questions.max_bytes, done
    )


def _session(broker: Broker, call: Call[Any], asked: Questions) -> ReplicaSession | ErrorCode:
    sessions = broker.replica_sessions
    if asked.session_epoch > FIRST_EPOCH:
        return sessions.next(asked.node, asked.life, asked.session_id, asked.session_epoch)
    session = sessions.open(asked.node, asked.life)
    known = call.connection.session
    if _SESSION not in known:
        call.connection.when_closed(lambda: sessions.close(known[_SESSION]))
    known[_SESSION] = session
    return session
