from tests.messages.generated import is_ours, messages_and_versions
from tests.messages.twin import twin_fields, twin_type

from waystation.messages.catalog import MESSAGES, request_type, response_type
from waystation.messages.fetch import FetchRequest, FetchResponse
from waystation.wire.message import Message, Struct
from waystation.wire.versions import SPOKEN, ApiKey


def test_what_is_spoken_is_declared_and_the_other_way_round() -> None:
    assert set(MESSAGES) == set(SPOKEN)


def test_a_key_leads_to_its_own_messages() -> None:
    assert request_type(ApiKey.FETCH) is FetchRequest
    assert response_type(ApiKey.FETCH) is FetchResponse
    for key, (request, response) in MESSAGES.items():
        words = key.name.title().replace("_", "")
        assert (request.__name__, response.__name__) == (f"{words}Request", f"{words}Response")
        assert request.api is response.api is key


def test_numbers_are_those_of_kafka() -> None:
    for declared, version in messages_and_versions():
        assert declared.api == twin_type(declared, version).__api_key__


def test_every_field_of_every_version_is_declared() -> None:
    for declared, version in messages_and_versions():
        check_fields(declared, twin_type(declared, version), version)


def check_fields(declared: type[Struct], theirs: type, version: int) -> None:
    ours = [
        name
        for name, found in declared.__fields__.items()
        if found.versions.include(version) and not is_ours(found)
    ]

    assert sorted(ours) == sorted(twin_fields(theirs)), f"{declared.__name__} v{version}"


def test_explicit_defaults_are_those_of_kafka() -> None:
    """Where Kafka's schema states a number, a text or a truth value, so do we."""
    for declared, version in messages_and_versions():
        check_defaults(declared, twin_type(declared, version))


def check_defaults(declared: type[Struct], theirs: type) -> None:
    fresh = declared()
    for name, (found, nested) in twin_fields(theirs).items():
        if isinstance(found.default, int | str):
            assert getattr(fresh, name) == found.default, f"{declared.__name__}.{name}"
        if nested is not None:
            kind = declared.__fields__[name].kind
            inner = getattr(kind, "element", kind)
            check_defaults(inner.type, nested)


def test_messages_are_small_instances() -> None:
    for pair in MESSAGES.values():
        for declared in pair:
            assert issubclass(declared, Message)
            assert not hasattr(declared(), "__dict__")
