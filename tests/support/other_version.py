"""``waystation serve`` as the version before this one, or the next, would write its metadata.

``WAYSTATION_FORMAT`` says which: ``older`` leaves out what was added to the values in the store
since they were first written, ``newer`` adds fields that nobody here knows.
"""

import json
import os

from waystation.broker import membership
from waystation.cluster import values

_ADDED = ("machine", "clean", "features", "eligible", "unclean_epoch")


class OlderEncoder:
    """Writes the first format, as far as that says all there is to say."""

    def encode(self, value: values.Value) -> bytes:
        fields = json.loads(values.msgspec.json.encode(value))
        for name in _ADDED:
            if name != "eligible" or not fields.get(name):
                fields.pop(name, None)
        return json.dumps(fields).encode()


class NewerEncoder:
    """Writes this format, and more."""

    def encode(self, value: values.Value) -> bytes:
        fields = json.loads(values.msgspec.json.encode(value))
        return json.dumps({**fields, "mood": "sunny", "plans": {"next": [1, 2]}}).encode()


def main() -> None:
    """Change what is written, and serve."""
    newer = os.environ.get("WAYSTATION_FORMAT", "older") == "newer"
    values._ENCODER = NewerEncoder() if newer else OlderEncoder()  # type: ignore[assignment]
    if newer:
        membership.FEATURES["plans"] = 1
    from waystation.cli.main import main as serve

    serve()


if __name__ == "__main__":
    main()
