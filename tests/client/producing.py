"""Producers that try again at once, and a broker that fails them as brokers and networks do."""

from random import Random

from tests.support.scripted_log import LogBroker

from waystation.client.errors import ConnectionLostError
from waystation.client.options import ProducerOptions
from waystation.client.producer import Producer
from waystation.wire.message import Message
from waystation.wire.versions import ApiKey

FAST: ProducerOptions = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "metadata_timeout_ms": 200,
    "linger_ms": 0,
}


def producer_to(broker: LogBroker, **options: object) -> Producer:
    return Producer(
        broker.bootstrap,
        connect=broker.connect,
        chance=Random(7),
        **FAST | options,  # type: ignore[arg-type,operator]
    )


def trouble_at(broker: LogBroker, chance: Random) -> None:
    """Let requests and answers get lost, and leaders move, for as long as the broker lives."""

    def trouble(request: Message) -> Message:
        match chance.randrange(12):
            case 0:
                raise ConnectionLostError("before it was appended")
            case 1:
                broker.produce(request)
                raise ConnectionLostError("after it was appended")
            case 2:
                broker.leaders = [chance.choice((1, 2)) for _ in broker.leaders]
                broker.epoch += 1
        return broker.produce(request)

    broker.handlers[ApiKey.PRODUCE] = trouble
