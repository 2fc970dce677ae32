"""Addresses as people type them."""

import pytest

from waystation.client.bootstrap import Address, parse_bootstrap
from waystation.model.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 9092)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
        (":9092", [("localhost", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == addresses


@pytest.mark.parametrize("text", ["", " , ", "host:port", "host:0", "host:70000", "::1:9092"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="localhost:9092"):
        parse_bootstrap(text)


def test_an_ipv6_address_prints_as_it_is_typed() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"
