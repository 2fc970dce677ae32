"""What a caller may have meant: names that are near the one it gave.

A wrong guess should lead to the right name, without a look into the documentation.  Names that
are very long are nobody's slip, and are not compared with anything.
"""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

import msgspec.inspect as inspected

__all__ = ["choices_at", "did_you_mean", "fields_at", "near_paths"]

_MOST_SHOWN: Final = 20
_LONGEST: Final = 120
_NEAR: Final = 0.65
_AN_ITEM: Final = re.compile(r"\[[^\]]*\]")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A remedy that leads from ``name`` to one of those that are ``known``."""
    near = get_close_matches(name, known, 2, _NEAR) if len(name) <= _LONGEST else []
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    more = " and others" if len(known) > _MOST_SHOWN else ""
    return f"{meant}there are {', '.join(known[:_MOST_SHOWN])}{more}"


def near_paths(parts: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Those of ``paths``, with their parameters in braces, that are near a path given in parts."""
    asked = "/" + "/".join(part for part in parts if part).lower()
    if len(asked) > _LONGEST:
        return []
    filled = {_filled(path, parts).lower(): path for path in paths}
    if asked in filled:
        return [filled[asked]]
    return [filled[one] for one in get_close_matches(asked, filled, 3, _NEAR)]


def _filled(path: str, parts: Sequence[str]) -> str:
    """``path`` with what was given where it has parameters."""
    own = path.split("/")[1:]
    given = [*parts, *own[len(parts) :]]
    return "/" + "/".join(
        there if one.startswith("{") else one for one, there in zip(own, given, strict=False)
    )


def fields_at(kind: Any, where: str) -> tuple[str, ...]:
    """The names of the fields that an object at ``where`` in a ``kind`` may have.

    ``where`` is a path as msgspec writes it: ``messages[3].headers[...]``.
    """
    structs = [one for one in _at(kind, where) if isinstance(one, inspected.StructType)]
    return tuple(dict.fromkeys(field.encode_name for one in structs for field in one.fields))


def choices_at(kind: Any, where: str) -> tuple[str, ...]:
    """What may stand at ``where`` in a ``kind``, if that is one of a few words."""
    found = [one for one in _at(kind, where) if isinstance(one, inspected.LiteralType)]
    return tuple(dict.fromkeys(str(value) for one in found for value in one.values))


def _at(kind: Any, where: str) -> tuple[inspected.Type, ...]:
    return _found_at(kind, _AN_ITEM.sub(".[]", where))


@lru_cache(maxsize=512)
def _found_at(kind: Any, where: str) -> tuple[inspected.Type, ...]:
    found = [inspected.type_info(kind)]
    for part in where.split("."):
        if part:
            found = [inner for one in _alternatives(found) for inner in _inner(one, part)]
    return tuple(_alternatives(found))


def _alternatives(kinds: Iterable[inspected.Type]) -> Iterable[inspected.Type]:
    for one in kinds:
        if isinstance(one, inspected.UnionType):
            yield from _alternatives(one.types)
        elif isinstance(one, inspected.Metadata):
            yield from _alternatives([one.type])
        else:
            yield one


def _inner(kind: inspected.Type, part: str) -> Iterable[inspected.Type]:
    match kind:
        case inspected.StructType() if part == kind.tag_field:
            yield inspected.LiteralType((kind.tag,))
        case inspected.StructType():
            yield from (one.type for one in kind.fields if one.encode_name == part)
        case inspected.ListType() if part == "[]":
            yield kind.item_type
        case inspected.DictType() if part == "[]":
            yield kind.value_type
