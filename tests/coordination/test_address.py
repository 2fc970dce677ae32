"""Addresses of coordination stores: what they mean, and what is wrong with others."""

import pytest

from waystation.coordination.address import StoreAddress, TlsFiles, parse_address
from waystation.model.errors import InvalidConfigError

THREE = ("a:1", "b:2", "c:3")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("sqlite", StoreAddress("sqlite")),
        ("etcd://a:1,b:2,c:3", StoreAddress("etcd", THREE)),
        ("etcd://a,b/", StoreAddress("etcd", ("a:2379", "b:2379"))),
        ("zookeeper://a", StoreAddress("zookeeper", ("a:2181",))),
        ("zookeeper://a:1,b:2,c:3/queues/eu-1", StoreAddress("zookeeper", THREE, "queues/eu-1")),
        ("etcd://[::1]:7,10.0.0.1", StoreAddress("etcd", ("[::1]:7", "10.0.0.1:2379"))),
        ("etcd://a?tls=true", StoreAddress("etcd", ("a:2379",), tls=TlsFiles())),
        (
            "etcd://a/x?ca=/c.pem&cert=/n.pem&key=/n.key&user=me&password-file=/pw%201",
            StoreAddress(
                "etcd", ("a:2379",), "x", TlsFiles("/c.pem", "/n.pem", "/n.key"), "me", "/pw 1"
            ),
        ),
    ],
)
def test_an_address_means(text: str, meaning: StoreAddress) -> None:
    assert parse_address(text) == meaning


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "a store is sqlite, etcd://"),
        ("etcd", "a store is sqlite, etcd://"),
        ("consul://a:1", "a store is sqlite, etcd://"),
        ("etcd:a:1", "a store is sqlite, etcd://"),
        ("etcd://", "'' is no HOST or HOST:PORT"),
        ("etcd://a,,b", "'' is no HOST or HOST:PORT"),
        ("etcd://a:0", "'a:0' is no HOST"),
        ("etcd://a:65536", "'a:65536' is no HOST"),
        ("etcd://a:http", "'a:http' is no HOST"),
        ("etcd://a b", "'a b' is no HOST"),
        ("etcd://a/../b", "no folder"),
        ("etcd://a/b c", "no folder"),
        ("etcd://a/b#c", "no folder"),
        ("etcd://a?passwordfile=/x", "did you mean password-file"),
        ("etcd://a?colour=red", "there are ca, cert"),
        ("etcd://a?ca=/x&ca=/y", "given twice"),
        ("etcd://a?ca=", "ca has no value"),
        ("etcd://a?key=/x", "needs its certificate"),
        ("etcd://a?tls=yes", "true or false"),
        ("etcd://a?tls=false&ca=/x", "mean nothing"),
        ("etcd://a?user=me", "belong together"),
        ("etcd://a?password-file=/x", "belong together"),
    ],
)
def test_a_wrong_address_is_told_how_it_would_be_right(text: str, remedy: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        parse_address(text)

    assert remedy in str(refusal.value)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidConfigError, match="password-file") as refusal:
        parse_address("etcd://me:secret@a:1")

    assert "secret" not in str(refusal.value)
