"""Signatures that any library of the Standard Webhooks scheme accepts."""

import base64

import pytest

from waystation.gateway.webhook_bodies import NewWebhook, defined
from waystation.gateway.webhook_signing import fingerprint, key_of, new_secret, signature


def test_the_published_example_is_signed_as_published() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_new_secrets_are_long_and_differ() -> None:
    made = {new_secret() for _ in range(100)}

    assert len(made) == len({fingerprint(one) for one in made}) == 100
    assert {len(key_of(one)) for one in made} == {32}


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2hunter2hunter2hunter2hunter2",
        "whsec_not base64 at all!",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(ValueError, match=r"must") as told:
        key_of(secret)

    assert secret.removeprefix("whsec_") not in str(told.value)


def test_secrets_that_were_replaced_sign_until_their_time_and_no_longer_than_the_last_word() -> (
    None
):
    wish = NewWebhook(name="billing", topic="orders", url="https://example.com/")
    first = defined(wish, "a", now=0)

    second = first.with_secret("b", 1_000, now=0)
    third = second.with_secret("c", 5_000, now=500)
    assert third.secrets_at(500) == ["c", "b", "a"]
    assert third.secrets_at(1_000) == ["c", "b"], "the first one's time is as it was promised"
    assert third.secrets_at(5_500) == ["c"]
    assert third.with_secret("c", 100, now=500).secrets_at(600) == ["c"], "sooner than promised"
    assert third.with_secret("a", 5_000, now=600).secrets_at(700) == ["a", "c", "b"], "and back"
    assert third.with_secret("d", 0, now=500).former_secrets == ()
    assert third.with_secret("d", 9, now=9_000).former_secrets[1:] == (), "what is over is dropped"
