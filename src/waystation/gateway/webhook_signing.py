"""Signatures by the Standard Webhooks scheme: who receives a webhook knows who sent it, and when.

The signature is HMAC-SHA256, in base64, over ``<webhook-id>.<webhook-timestamp>.<body>``.  The
secret is written ``whsec_`` and the base64 of its bytes, the key is the bytes.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

__all__ = ["fingerprint", "key_of", "new_secret", "signature"]

_PREFIX: Final = "whsec_"
_LEAST_BYTES, _MOST_BYTES, _NEW_BYTES = 24, 64, 32


def new_secret() -> str:
    """A secret that nobody can guess."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_NEW_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The key that a secret stands for; ``ValueError`` if it is none, which never quotes it."""
    if not secret.startswith(_PREFIX):
        raise ValueError(f"must begin with {_PREFIX}")
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"must be {_PREFIX} and base64") from None
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ValueError(f"has {len(key)} bytes, must have {_LEAST_BYTES} to {_MOST_BYTES}")
    return key


def fingerprint(secret: str) -> str:
    """Tells secrets apart without giving them away."""
    return hashlib.sha256(key_of(secret)).hexdigest()[:16]


def signature(key: bytes, message_id: str, timestamp_s: int, body: bytes) -> str:
    """What goes into the header ``webhook-signature``, by one secret; several are set apart by
    spaces, and one that fits is enough.
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp_s, body)
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
