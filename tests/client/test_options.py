"""Keywords become settings, and every wrong one is named at once."""

from dataclasses import fields

import pytest

from waystation.client.options import (
    ConnectionOptions,
    ConsumerOptions,
    ProducerOptions,
    producer_settings,
)
from waystation.client.queue_settings import QueueOptions, ReceivingSettings
from waystation.client.settings import (
    ConnectionSettings,
    ConsumerSettings,
    MemberSettings,
    ProducerSettings,
)
from waystation.model.errors import InvalidSettingsError


def test_every_setting_is_a_keyword_and_every_keyword_a_setting() -> None:
    connection = {field.name for field in fields(ConnectionSettings)}

    assert set(ConnectionOptions.__annotations__) == connection
    for options, *settings in (
        (ProducerOptions, ProducerSettings),
        (ConsumerOptions, ConsumerSettings, MemberSettings),
        (QueueOptions, ReceivingSettings),
    ):
        own = {one.name for each in settings for one in fields(each)}
        assert set(options.__annotations__) == own | connection


def test_numbers_and_names_of_acks_mean_the_same() -> None:
    assert producer_settings({"acks": -1})[0].acks == "all"
    assert producer_settings({"acks": 1})[0].acks == "1"
    assert producer_settings({})[0].acks == "all"


def test_idempotence_is_on_exactly_where_it_can_be() -> None:
    assert producer_settings({})[0].idempotent
    assert not producer_settings({"acks": "1"})[0].idempotent
    with pytest.raises(InvalidSettingsError, match="acks"):
        producer_settings({"acks": "1", "idempotent": True})


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(InvalidSettingsError) as caught:
        producer_settings({"linger_ms": -1, "compression": "brotli", "batch_bytes": "many"})  # type: ignore[typeddict-item]

    assert len(caught.value.problems) == 3


def test_an_unknown_keyword_comes_with_its_neighbour() -> None:
    with pytest.raises(InvalidSettingsError, match="did you mean linger_ms"):
        producer_settings({"linger": 5})  # type: ignore[typeddict-unknown-key]
