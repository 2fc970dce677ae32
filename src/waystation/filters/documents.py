"""Fields of JSON documents, read without building the documents.

A reader knows the paths that are asked for and makes a type of them; msgspec then builds those
fields and steps over the rest.  What holds:

1. a path leads to what ``json.loads`` would find there; of members with one name the last counts;
2. what is no JSON has no fields, nor has one that is nested too deep or has a number among what
   is asked for that no double can hold.  What nobody asks for is stepped over, and there bytes
   that are no UTF-8 do no harm;
3. the cost grows with the document, whatever it holds.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

__all__ = ["Path", "Reader"]

Path = tuple[str | int, ...]
Convert = Callable[[Any], Any]

_SCALARS = list[Any] | str | int | float | bool | None
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Reader:
    """Reads columns of fields: one of each path and conversion, in their order."""

    __slots__ = ("_columns", "_decode")

    def __init__(self, wanted: Iterable[tuple[Path, Convert]]) -> None:
        wanted = list(wanted)
        names = _Names()
        for path, _ in wanted:
            _add(names, path)
        self._decode = msgspec.json.Decoder(_type_of(names)).decode
        self._columns = [(_steps(names, path), convert) for path, convert in wanted]

    def columns(self, values: Sequence[bytes | None]) -> list[list[Any]]:
        """The columns of these documents; a null, and what is no document, has NULL in each.

        HOT: once per batch that may match, and its loop once per document: about 1 µs and the
        fields of 1 KB (benchmarks/filters.py).
        """
        decode = self._decode
        documents: list[Any] = []
        for value in values:
            try:
                documents.append(decode(value) if value else None)
            except _UNREADABLE:
                documents.append(None)
        return [_column(documents, steps, convert) for steps, convert in self._columns]


class _Names(dict[str, "_Names"]):
    """The members of an object that are asked for, and theirs."""


Step = str | int
"""An attribute of a type that was made, or an index of a list."""


def _add(names: _Names, path: Path) -> None:
    for step in path:
        if isinstance(step, int):
            return  # what is behind an index is taken as it comes
        names = names.setdefault(step, _Names())


def _type_of(names: _Names) -> Any:
    """Objects become structs of what is asked for; everything else stays what it is."""
    if not names:
        return Any
    attributes = {_attribute(number): name for number, name in enumerate(names)}
    members = [(attribute, _type_of(names[name]), None) for attribute, name in attributes.items()]
    struct = msgspec.defstruct("Document", members, rename=attributes, gc=False)
    return struct | _SCALARS


def _attribute(number: int) -> str:
    return f"member_{number}"


def _steps(names: _Names, path: Path) -> list[tuple[Step, str | int]]:
    """Each step by the attribute that it has in a struct, and by itself."""
    steps: list[tuple[Step, str | int]] = []
    known: _Names | None = names
    for step in path:
        if known is not None and step in known:
            assert isinstance(step, str), f"index {step} among names"
            steps.append((_attribute(list(known).index(step)), step))
            known = known[step]
        else:
            steps.append((step, step))
            known = None
    return steps


def _column(
    documents: list[Any], steps: list[tuple[Step, str | int]], convert: Convert
) -> list[Any]:
    found = documents
    for attribute, step in steps:
        if isinstance(step, int):
            found = [_member(one, step) for one in found]
        else:
            assert isinstance(attribute, str), f"attribute {attribute}"
            found = [
                getattr(one, attribute, None) if type(one) is not dict else one.get(step)
                for one in found
            ]
    return [None if one is None else convert(one) for one in found]


def _member(holder: object, index: int) -> Any:
    if type(holder) is list and index < len(holder):
        return holder[index]
    return None
