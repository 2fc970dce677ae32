"""HOST:PORT, as people and Kafka's configuration files write it."""

import pytest

from waystation.model.errors import InvalidSettingsError
from waystation.node.addresses import Address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("localhost:0", "localhost", 0),
        ("PLAINTEXT://broker:9092", "broker", 9092),
        ("PLAINTEXT://:9092", "", 9092),
        ("[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1]:65535", "fe80::1", 65_535),
        ("0.0.0.0:9092", "0.0.0.0", 9092),
    ],
)
def test_an_address_is_read_however_it_is_written(text: str, host: str, port: int) -> None:
    assert parse_address("--listen", text) == Address(host, port)


@pytest.mark.parametrize(
    "text",
    ["", "9092", "host", "host:", "host:x", "host:-1", "host:65536", "SSL://host:1", "a:1,b:2"],
)
def test_what_is_no_address_is_refused_and_the_option_named(text: str) -> None:
    with pytest.raises(InvalidSettingsError, match="--listen"):
        parse_address("--listen", text)


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:9092", "broker:1"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address("x", text)) == text


def test_loopback_and_wildcard_are_known() -> None:
    loopback = ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"]
    wildcard = ["0.0.0.0:1", "[::]:1", ":1"]
    outside = ["10.0.0.1:1", "broker.example:1"]

    for text in loopback + wildcard + outside:
        address = parse_address("x", text)
        assert address.is_loopback == (text in loopback)
        assert address.is_wildcard == (text in wildcard)
