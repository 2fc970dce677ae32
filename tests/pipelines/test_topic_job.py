"""What jobs into a topic are called, and what they refuse before Spark is asked."""

import re

import pytest
from click.testing import CliRunner

from waystation.pipelines import dedupe, sessions, transform
from waystation.pipelines.failures import JobError
from waystation.pipelines.topic_job import named, refuse_loops, sink_name, with_defaults
from waystation.spark.sink_options import parse_write_options


def test_a_job_has_the_same_name_with_every_checkpoint() -> None:
    first = sink_name("transform", ["a", "b"], None, "out")

    assert first == sink_name("transform", ["b", "a"], None, "out")
    assert re.fullmatch(r"transform-out-[0-9a-f]{8}", first)


def test_jobs_between_other_topics_have_other_names() -> None:
    asked = [("dedupe", ["a"], None, "x"), ("dedupe", ["b"], None, "x"), ("dedupe", [], "a", "x")]
    asked += [("dedupe", ["a"], None, "y"), ("sessions", ["a"], None, "x")]

    assert len({sink_name(*one) for one in asked}) == len(asked)


def test_every_topic_makes_a_name_that_a_sink_may_have() -> None:
    name = sink_name("transform", [], ".*[$]", "o" * 249)

    parse_write_options({"bootstrap.servers": "h:1", "sinkId": name}, stream=True)


def test_a_job_does_not_read_what_it_writes() -> None:
    refuse_loops(["in"], None, "out")
    refuse_loops([], "orders-.*", "orders")
    for topics, pattern in ((["in", "out"], None), ([], "o.t")):
        with pytest.raises(JobError, match="would read the topic out, to which it writes"):
            refuse_loops(topics, pattern, "dead", "out")


def test_topics_are_a_list_or_a_text() -> None:
    assert named(" a, b,") == named(["a", "b "]) == ("a", "b")


def test_what_the_user_says_wins_however_it_is_spelled() -> None:
    found = with_defaults({"STARTINGoffsets": "latest"}, startingOffsets="earliest", other=1)

    assert found == {"STARTINGoffsets": "latest", "other": 1}


@pytest.mark.parametrize("job", [transform, dedupe, sessions])
def test_the_checkpoint_must_be_said_before_spark_starts(job: object) -> None:
    done = CliRunner().invoke(job.command, ["--topics", "in", "--to", "out"])  # type: ignore[attr-defined]  # each has one

    assert done.exit_code == 2
    assert "--checkpoint DIR, a folder that stays" in done.output
