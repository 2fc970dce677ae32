"""Every message in every version is written as Kafka's schemas say, and read back the same.

The other opinion is kio's, whose codec is generated from those schemas.  It only ever
gets what we encoded: its decoder can bring the process down.
"""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from tests.messages.generated import instances, messages_and_versions
from tests.messages.twin import encoded_by_twin, twin_type

from waystation.wire.message import Message

EXAMPLES = 400 if os.environ.get("WAYSTATION_SOAK") else 25

ALL = list(messages_and_versions())
NAMES = [f"{declared.__name__}-v{version}" for declared, version in ALL]


@pytest.mark.parametrize(("declared", "version"), ALL, ids=NAMES)
def test_bytes_are_those_of_kafka_and_come_back_equal(
    declared: type[Message], version: int
) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(instances(declared, version, twin_type(declared, version)))
    def agree(message: Message) -> None:
        encoded = message.encode(version)

        assert encoded == encoded_by_twin(message, version)
        assert declared.decode(memoryview(encoded), version) == message

    agree()
