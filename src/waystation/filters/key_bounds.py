"""Which keys a message can have that an expression means.

Whoever has messages by their keys looks only at those, and asks the filter about them: what is
found here may be too much, never too little.
"""

from waystation.filters.syntax import And, Compare, Condition, Field, In, Literal, Or, Root, Value

__all__ = ["keys_of"]


def keys_of(condition: Condition) -> frozenset[bytes] | None:
    """One of these keys has every message that is meant; ``None``: any may have."""
    match condition:
        case Compare("=", left, right):
            return _compared(left, right) or _compared(right, left)
        case In(operand, values):
            return frozenset(map(_bytes, values)) if _is_key(operand) else None
        case And(operands):
            known = [keys for one in operands if (keys := keys_of(one)) is not None]
            return frozenset.intersection(*known) if known else None
        case Or(operands):
            each = [keys_of(one) for one in operands]
            known = [keys for keys in each if keys is not None]
            return frozenset.union(*known) if len(known) == len(each) else None
        case _:
            return None


def _compared(left: Value, right: Value) -> frozenset[bytes] | None:
    if _is_key(left) and isinstance(right, Literal):
        return frozenset((_bytes(right.value),))
    return None


def _bytes(text: object) -> bytes:
    """As a key is written; what is no text at all is no key either."""
    return str(text).encode(errors="surrogatepass")


def _is_key(value: Value) -> bool:
    return isinstance(value, Field) and value.root is Root.KEY
