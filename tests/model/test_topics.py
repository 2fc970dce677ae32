import pytest

from waystation.model.errors import InvalidSettingsError, InvalidTopicError
from waystation.model.settings import parse_settings
from waystation.model.topics import TopicSettings, check_topic_name


@pytest.mark.parametrize("name", ["orders", "a.b_c-D9", "x" * 249, "..."])
def test_legal_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\0", "a\n"])
def test_illegal_names_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="topic"):
        check_topic_name(name)


@pytest.mark.parametrize("group", ["", "archive-lake", "été", "a b", "x" * 32_767])
def test_an_archive_may_be_any_one_group(group: str) -> None:
    settings = parse_settings(TopicSettings, {"retention.after.archive": group})

    assert settings.retention_after_archive == group


@pytest.mark.parametrize(
    ("group", "remedy"),
    [
        ("lake,mirror", "must be the id of one group"),
        ("lake\nmirror", "without control characters"),
        ("lake\0", "without control characters"),
        ("é" * 16_384, "32767 bytes"),
    ],
)
def test_what_is_no_group_cannot_archive(group: str, remedy: str) -> None:
    with pytest.raises(InvalidSettingsError, match=f"^retention.after.archive .*{remedy}"):
        parse_settings(TopicSettings, {"retention.after.archive": group})
