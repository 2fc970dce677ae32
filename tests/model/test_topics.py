import pytest

from waystation.model.errors import InvalidTopicError
from waystation.model.topics import check_topic_name


@pytest.mark.parametrize("name", ["orders", "a.b_c-D9", "x" * 249, "..."])
def test_legal_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\0", "a\n"])
def test_illegal_names_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="topic"):
        check_topic_name(name)
