"""Options of the source: understood as Spark's own are, and refused by their names."""

import contextlib
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.client.settings import ConnectionSettings
from waystation.model.ids import TopicPartition
from waystation.model.settings import Option, options_of
from waystation.spark.errors import BadOptionError
from waystation.spark.option_names import connection_options
from waystation.spark.options import ReadOptions, SourceSettings, parse_options
from waystation.spark.planning import EARLIEST, LATEST, Limits

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "spark.md"


def read(stream: bool = False, **more: str) -> ReadOptions:
    options = {"bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    return parse_options({**options, **_dotted(more)}, stream=stream)


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    assert read().starting.everywhere == EARLIEST
    assert read().ending.everywhere == LATEST
    assert read(stream=True).starting.everywhere == LATEST


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = read()

    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.isolation == "read_committed"
    assert options.limits._replace(max_delay_ms=0) == Limits()
    assert options.limits.max_delay_ms == 15 * 60 * 1_000
    assert options.group_id == ""


def test_capitals_do_not_matter() -> None:
    assert read(MINPARTITIONS="7").min_partitions == read(minpartitions="7").min_partitions == 7


def test_sparks_own_spellings_are_understood() -> None:
    options = parse_options(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "subscribe": "orders",
            "kafka.group.id": "readers",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.request.timeout.ms": "1234",
            "kafka.security.protocol": "PLAINTEXT",
        },
        stream=True,
    )

    assert options.bootstrap == "a:1,b:2"
    assert options.group_id == "readers"
    assert options.isolation == "read_uncommitted"
    assert connection_options(options.client)["request_timeout_ms"] == 1234


def test_options_travel() -> None:
    options = read(startingOffsets='{"orders": {"0": 5}}', kafka__client__id="me")

    assert pickle.loads(pickle.dumps(options)) == options


def test_topics_may_be_listed_matched_or_assigned() -> None:
    brokers = {"bootstrap.servers": "localhost"}

    listed = parse_options({**brokers, "subscribe": " b , a,a"}, stream=False)
    matched = parse_options({**brokers, "subscribePattern": "or.*"}, stream=False)
    assigned = parse_options({**brokers, "assign": '{"a": [1]}'}, stream=False)

    assert listed.topics.names == ("a", "b")
    assert matched.topics.pattern == "or.*"
    assert assigned.topics.partitions == (TopicPartition("a", 1),)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
    ],
)
def test_times_are_numbers_or_words(text: str, moment_ms: int) -> None:
    position = read(startingTimestamp=text).starting

    assert (position.everywhere, position.by_time) == (moment_ms, True)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("90s", 90_000), ("15m", 900_000), ("2 h", 7_200_000), ("250ms", 250), ("7", 7)],
)
def test_delays_have_units(text: str, delay_ms: int) -> None:
    assert read(maxTriggerDelay=text).limits.max_delay_ms == delay_ms


@pytest.mark.parametrize(
    ("given", "stream", "named"),
    [
        ({"subscribe": ""}, False, "one of subscribe, subscribePattern and assign"),
        ({"subscribe": ","}, False, "subscribe names no topic"),
        ({"assign": '{"a": [0]}'}, False, "subscribe and assign given"),
        ({"bootstrap.servers": ""}, False, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "a:b:c"}, False, "bootstrap.servers: 'a:b:c' is no address"),
        ({"startingOffset": "x"}, False, "startingoffset; did you mean startingOffsets"),
        ({"kafka.request.timeout": "5"}, False, "did you mean kafka.request.timeout.ms"),
        ({"kafka.bootstrap.servers": "b:1"}, False, "bootstrap.servers is given twice"),
        ({"path": "/lake"}, False, "name it with subscribe"),
        ({"kafka.auto.offset.reset": "latest"}, False, "say where to begin with startingOffsets"),
        ({"kafka.security.protocol": "SASL_SSL"}, False, "kafka.security.protocol"),
        ({"kafka.ssl.truststore.location": "/x"}, False, "PLAINTEXT only"),
        ({"startingOffsets": "first"}, False, "startingOffsets is 'first'"),
        ({"startingOffsets": "{"}, False, "startingOffsets is '{', no JSON"),
        ({"startingOffsets": "latest"}, False, "cannot begin at the latest offset"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False, "startingOffsets: a batch read"),
        ({"endingOffsets": "earliest"}, False, "cannot end at the earliest offset"),
        ({"endingOffsets": "latest"}, True, "endingOffsets is for batch reads"),
        ({"endingTimestamp": "5"}, True, "endingTimestamp is for batch reads"),
        ({"startingTimestamp": "soon"}, False, "startingTimestamp is 'soon', no time"),
        (
            {"startingTimestamp": "5", "startingOffsets": "earliest"},
            False,
            "startingOffsets and startingTimestamp contradict",
        ),
        ({"startingOffsetsByTimestampStrategy": "x"}, False, "must be one of error, latest"),
        ({"maxOffsetsPerTrigger": "-1"}, True, "maxOffsetsPerTrigger is -1, must be at least 0"),
        ({"maxOffsetsPerTrigger": "many"}, True, "maxOffsetsPerTrigger is 'many'"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            True,
            "minOffsetsPerTrigger is 6, more than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "soon"}, True, "maxTriggerDelay is 'soon'"),
        ({"failOnDataLoss": "maybe"}, False, "failOnDataLoss is 'maybe', must be true or false"),
        ({"isolationLevel": "serializable"}, False, "isolationLevel is 'serializable'"),
        ({"where": "contry = 'DE'"}, True, "where: unknown field contry"),
        ({"kafka.request.timeout.ms": "soon"}, False, "request.timeout.ms is 'soon'"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], stream: bool, named: str) -> None:
    options = {"bootstrap.servers": "localhost:9092", "subscribe": "orders", **given}

    with pytest.raises(BadOptionError) as refused:
        parse_options(options, stream=stream)

    assert named in str(refused.value)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(BadOptionError, match="subscribePattern"):
        parse_options({"bootstrap.servers": "a", "subscribePattern": "("}, stream=False)


def test_what_suits_a_stream_is_right_until_spark_says_what_it_reads() -> None:
    options = {"bootstrap.servers": "a", "subscribe": "t"}

    parse_options({**options, "startingOffsets": "latest"}, stream=None)
    parse_options({**options, "endingOffsets": "latest"}, stream=None)


texts = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.sampled_from(
        ["²", "1²:²", "{}", '{"t": {"²": 1}}', "9" * 30, "a{99999999999}", "0001-01-01"]
    ),
    st.dictionaries(st.text(max_size=3), st.integers() | st.lists(st.integers())).map(json.dumps),
)


@given(
    st.dictionaries(
        st.sampled_from([one.name for one in options_of(SourceSettings)]), texts, max_size=4
    ),
    st.sampled_from([True, False, None]),
)
def test_whatever_is_said_is_understood_or_refused(
    said: dict[str, str], stream: bool | None
) -> None:
    with contextlib.suppress(BadOptionError):
        parse_options({"bootstrap.servers": "a", "subscribe": "t", **said}, stream=stream)


@pytest.mark.parametrize("known", options_of(SourceSettings), ids=lambda known: known.name)
def test_the_reference_says_what_the_declaration_says(known: Option) -> None:
    said = f"`{known.format(known.default)}`" if known.default or known.kind is bool else "–"

    assert f"| `{known.name}` | {said} | {known.doc} |\n" in REFERENCE.read_text()


def test_the_reference_names_the_clients_options() -> None:
    text = REFERENCE.read_text()

    for known in options_of(ConnectionSettings):
        assert f"`kafka.{known.kafka}`" in text
