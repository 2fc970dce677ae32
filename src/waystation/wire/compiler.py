"""Compiles a declaration for one version at its first use, and speaks for what was compiled.

One message has a cache of decoders and one of encoders, by version.  Asking a cache for
a version that is not spoken raises; a version costs about a millisecond, once.
"""

import struct
from typing import Any, Final

from waystation.model.errors import MalformedFrameError, UnsupportedVersionError
from waystation.wire.decoding import compile_decoder
from waystation.wire.encoding import compile_encoder
from waystation.wire.source import Compiled
from waystation.wire.versions import Spoken

__all__ = ["DECODING_FAULTS", "ENCODING_FAULTS", "Decoders", "Encoders"]

DECODING_FAULTS: Final = (MalformedFrameError, struct.error, IndexError, UnicodeDecodeError)
"""All that generated decoders raise, whatever bytes they are given."""

ENCODING_FAULTS: Final = (struct.error, AttributeError, TypeError, UnicodeEncodeError)
"""What generated encoders raise when a field holds what it must not."""


class _Cache(dict[int, Compiled]):
    """Compiled functions of one message by version."""

    def __init__(self, declared: type[Any], spoken: Spoken) -> None:
        self._declared, self._spoken = declared, spoken

    def __missing__(self, version: int) -> Compiled:
        name, spoken = self._declared.__name__, self._spoken.versions
        if not spoken.include(version):
            raise UnsupportedVersionError(
                f"{name} v{version}: versions {spoken.low} to {spoken.high} are spoken"
            )
        self[version] = compiled = self._compile(version)
        return compiled

    def _compile(self, version: int) -> Compiled:
        raise NotImplementedError

    def _flexible(self, version: int) -> bool:
        return self._spoken.flexible.include(version)


class Decoders(_Cache):
    """The readers of one message; each takes a view and gives a message."""

    def _compile(self, version: int) -> Compiled:
        return compile_decoder(self._declared, version, flexible=self._flexible(version))

    def refusal(self, version: int, fault: Exception) -> MalformedFrameError:
        """What to raise for bytes at which the reader of ``version`` gave up."""
        match fault:
            case MalformedFrameError():
                reason = str(fault)
            case UnicodeDecodeError():
                reason = f"text that is not UTF-8: {fault.reason}"
            case _:
                reason = "the frame ends here"
        return MalformedFrameError(f"{self[version].culprit(fault)} (v{version}): {reason}")


class Encoders(_Cache):
    """The writers of one message; each takes a message and gives its parts."""

    def _compile(self, version: int) -> Compiled:
        return compile_encoder(self._declared, version, flexible=self._flexible(version))

    def complaint(self, version: int, fault: Exception) -> ValueError:
        """What to raise for a message that ``version`` cannot express: a bug of the caller."""
        return ValueError(f"{self[version].culprit(fault)} (v{version}): {fault}")
