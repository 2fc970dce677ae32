"""Keywords become settings, and every wrong one is named at once."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.options import (
    ConnectionOptions,
    ConsumerOptions,
    ProducerOptions,
    consumer_settings,
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
from waystation.model.settings import PROFILES


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


@given(
    st.sampled_from([None, *PROFILES]),
    st.dictionaries(st.sampled_from(["linger_ms", "batch_bytes"]), st.integers(1, 9_999)),
)
def test_a_profile_is_a_default_and_whatever_is_given_wins(
    profile: str | None, given_too: dict[str, int]
) -> None:
    word = {} if profile is None else {"profile": profile}
    settings = producer_settings({**word, **given_too})[0]  # type: ignore[typeddict-item]
    defaults = {
        "balanced": (5, 128 << 10, "none"),
        "latency": (0, 128 << 10, "none"),
        "throughput": (50, 512 << 10, "lz4"),
    }[profile or "balanced"]

    assert settings.linger_ms == given_too.get("linger_ms", defaults[0])
    assert settings.batch_bytes == given_too.get("batch_bytes", defaults[1])
    assert settings.compression == defaults[2]
    assert (settings.acks, settings.idempotent) == ("all", True)


def test_a_consumer_has_profiles_too_and_no_others() -> None:
    reading = consumer_settings({"profile": "throughput", "fetch_max_wait_ms": 7})[0]

    assert (reading.fetch_min_bytes, reading.fetch_max_wait_ms) == (64 << 10, 7)
    assert consumer_settings({"profile": "latency"})[0].fetch_min_bytes == 1
    with pytest.raises(InvalidSettingsError, match="profile is 'speed', must be one of balanced"):
        consumer_settings({"profile": "speed"})
