import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.model.errors import InvalidSettingsError
from waystation.model.settings import option, options_of, parse_settings
from waystation.model.topics import TopicSettings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    keep_ms: int = option(5, at_least=0, at_most=10, doc="How long.")
    share: float = option(0.5, doc="How much.")
    eager: bool = option(False, doc="Whether.")
    colours: tuple[str, ...] = option(("red",), choices=("red", "blue"), doc="Which.")


def test_names_follow_the_fields() -> None:
    assert [one.name for one in options_of(Sample)] == ["keep.ms", "share", "eager", "colours"]


def test_texts_become_values() -> None:
    texts = {"keep.ms": "7", "share": "0.25", "eager": "TRUE", "colours": "blue, red"}

    assert parse_settings(Sample, texts) == Sample(
        keep_ms=7, share=0.25, eager=True, colours=("blue", "red")
    )


def test_every_problem_is_reported_at_once() -> None:
    wrong = {"keep.ms": "11", "share": "half", "eager": "maybe", "colours": "pink", "kep.ms": "1"}
    with pytest.raises(InvalidSettingsError) as raised:
        parse_settings(Sample, wrong)

    assert raised.value.problems == (
        "keep.ms is 11, must be at most 10",
        "share is 'half', must be a number",
        "eager is 'maybe', must be true or false",
        "colours is 'pink', must be one of red, blue",
        "unknown option kep.ms; did you mean keep.ms?",
    )


@given(st.sampled_from(options_of(TopicSettings)))
def test_a_default_is_in_bounds_and_survives_its_own_text(one: object) -> None:
    assert one.parse(one.format(one.default)) == one.default  # type: ignore[attr-defined]


def test_every_topic_option_says_what_it_does() -> None:
    assert all(len(one.doc) > 20 for one in options_of(TopicSettings))
