"""Where webhooks may go, and where not."""

import ssl
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st
from tests.support.webhook_receiver import Receiver

from waystation.gateway.webhook_posting import Poster
from waystation.gateway.webhook_targets import (
    AllowedNetworks,
    TargetRefusedError,
    parse_networks,
    parse_target,
)
from waystation.runtime.clock import SystemClock

REFUSED = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.170",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0a00:0001",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:7f00:1::",
    "2001:0:808:808:0:0:80ff:fffe",
    "2a00:1450::5efe:192.168.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd12:3456::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
]
PUBLIC = [
    "8.8.8.8",
    "93.184.215.14",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2606:2800:21f:cb07:6820:80da:af6b:8b2c",
    "2a00:1450:4001:82a::200e",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused_in_whatever_form(address: str) -> None:
    with pytest.raises(TargetRefusedError, match=r"is not public.*webhook\.allow"):
        AllowedNetworks().check(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_let_pass(address: str) -> None:
    AllowedNetworks().check(address)


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_wrapping_an_address_changes_nothing(plain: IPv4Address) -> None:
    number = int(plain)
    forms = [
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]
    rule = AllowedNetworks()

    assert {_passes(rule, str(one)) for one in forms} == {_passes(rule, str(plain))}


def test_an_operator_allows_networks_in_every_form_and_no_others() -> None:
    rule = parse_networks(["10.1.0.0/16", "::1/128"])

    for address in ("10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "::1"):
        rule.check(address)
    for address in ("10.2.0.1", "127.0.0.1", "::ffff:10.2.0.1", "fe80::1"):
        assert not _passes(rule, address)
    with pytest.raises(ValueError, match=r"10\.1\.2\.3/16"):
        parse_networks(["10.1.2.3/16"])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("gopher://example.com:6379/", "https://"),
        ("example.com/hook", "https://"),
        ("https:///hook", "no host"),
        ("https://ann:secret@example.com/", "name and password"),
        ("https://@example.com/", "name and password"),
        ("https://example.com\\@10.0.0.1/", "percent-encoding"),
        ("https://example.com/a b", "percent-encoding"),
        ("https://example.com/\r\nHost: other", "percent-encoding"),
        ("https://exämple.com/", "percent-encoding"),
        ("https://example.com:99999/", "no URL"),
        ("https://example.com:0/", "port 0"),
        ("http://example.com:22/", "port 22"),
        ("http://example.com:6379/", "port 6379"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com/" + "a" * 2_048, "characters"),
        ("https://[::1/", "no URL"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_target(url)


def test_the_secret_in_a_url_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="password") as told:
        parse_target("https://ann:hunter2@example.com/")

    assert "hunter2" not in str(told.value)


class Fickle(AbstractResolver):
    """A name service that says another address each time."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        address = self._addresses.pop(0)
        return [ResolveResult(hostname=host, host=address, port=port, family=2, proto=0, flags=0)]

    async def close(self) -> None:
        pass


async def test_a_name_that_changes_its_mind_gains_nothing() -> None:
    """The second connection would lead elsewhere; it is checked by itself, and not made."""
    with Receiver() as allowed, Receiver() as hidden:
        port = hidden.url.rpartition(":")[2].removesuffix("/hook")
        poster = Poster(
            parse_networks(["127.0.0.2/32"]),
            clock=SystemClock(),
            resolver=Fickle("127.0.0.2", "127.0.0.1"),
        )
        url = f"http://fickle.example:{port}/hook"
        first = await poster.post(url, b"{}", {"connection": "close"}, 5)
        second = await poster.post(url, b"{}", {}, 5)
        await poster.aclose()

        assert first.error is not None
        assert "127.0.0.2" in first.error, "allowed, and nobody listens there"
        assert second.status is None
        assert "refused to connect: 127.0.0.1" in (second.error or "")
        assert hidden.hooks == allowed.hooks == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
async def test_a_literal_address_is_checked_as_well(host: str) -> None:
    with Receiver() as hidden:
        port = hidden.url.rpartition(":")[2]
        poster = Poster(AllowedNetworks(), clock=SystemClock())
        told = await poster.post(f"http://{host}:{port}", b"{}", {}, 5)
        await poster.aclose()

        assert told.status is None
        assert hidden.hooks == []


async def test_certificates_are_verified_against_the_authorities_given(tmp_path: Any) -> None:
    import trustme

    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(served)
    pem = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(pem))
    loopback = parse_networks(["127.0.0.0/8"])
    with Receiver(tls=served) as receiver:
        stranger = Poster(loopback, clock=SystemClock())
        friend = Poster(loopback, clock=SystemClock(), ca_file=str(pem))
        refused = await stranger.post(receiver.url, b"{}", {}, 5)
        taken = await friend.post(receiver.url, b"{}", {}, 5)
        await stranger.aclose()
        await friend.aclose()

    assert refused.status is None
    assert "certificate" in (refused.error or "").lower()
    assert (taken.status, taken.error) == (200, None)
    assert len(receiver.hooks) == 1


def _passes(rule: AllowedNetworks, address: str) -> bool:
    try:
        rule.check(address)
    except TargetRefusedError:
        return False
    return True
