"""Writes the function that reads one version of one message.

The function is a straight line: nested structs are unrolled in place and neighbouring
fixed-width fields, together with the length that follows them, are unpacked at once.
What it promises:

1. a count or a length is compared with the bytes left before anything is made for it;
2. a frame has at most ``MOST_ELEMENTS``, since a hundred megabytes of empty strings are
   all there and would still take seconds and gigabytes;
3. every byte is consumed, or the frame is refused;
4. it raises nothing but what ``compiler.py`` translates into a refusal.

Locals of the function: ``at`` is the place reached, ``end`` the end of the view, ``room``
the number of elements that may still come.
"""

import struct
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from waystation.model.errors import MalformedFrameError
from waystation.wire.primitives import decode_uvarint, finish_uvarint, skip_tagged_fields, uuid_of
from waystation.wire.schema import Array, Bytes, Field, Fixed, Kind, Nested, Records, String, Uuid
from waystation.wire.source import Compiled, Source

__all__ = ["MOST_ELEMENTS", "compile_decoder"]

MOST_ELEMENTS = 1 << 20
"""How many array elements and tagged fields one frame may hold, all arrays together."""


def compile_decoder(declared: type[Any], version: int, *, flexible: bool) -> Compiled:
    """Make the reader of ``declared`` in ``version``."""
    title = declared.__name__
    writer = _Decoder(Source(title), version, flexible)
    writer.write(declared)
    return writer.source.compile(f"<decoder of {title} v{version}>")


def wrong_length(length: int, left: int) -> MalformedFrameError:
    """The refusal of a length that is negative or reaches past the end."""
    if length == -1:
        return MalformedFrameError("null where a value is required")
    return MalformedFrameError(f"a length of {length} where {left} bytes are left")


def wrong_count(count: int, left: int) -> MalformedFrameError:
    """The refusal of a count that the bytes left cannot hold."""
    if count == -1:
        return MalformedFrameError("null where an array is required")
    return MalformedFrameError(f"{count} elements where {left} bytes are left")


def no_room() -> MalformedFrameError:
    """The refusal of a frame that holds more than any sender has to say."""
    return MalformedFrameError(f"more than {MOST_ELEMENTS} elements in one frame")


def left_over(at: int, end: int) -> MalformedFrameError:
    """The refusal of a value that ends elsewhere than its frame, or its tag, says."""
    return MalformedFrameError(f"ends at byte {at}, should end at byte {end}")


class _Decoder:
    """Writes the lines; ``run`` collects what can be unpacked together."""

    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self.source, self._version, self._flexible = source, version, flexible
        self._run: list[tuple[str, str, str]] = []
        self._after_run: list[tuple[str, str]] = []
        source.constants.update(
            decode_uvarint=decode_uvarint,
            finish_uvarint=finish_uvarint,
            left_over=left_over,
            no_room=no_room,
            skip_tagged_fields=skip_tagged_fields,
            unpack_from=struct.unpack_from,
            uuid_of=uuid_of,
            wrong_count=wrong_count,
            wrong_length=wrong_length,
        )

    def write(self, declared: type[Any]) -> None:
        """Write the whole function.

        Bytes after a request are ignored, as Kafka ignores them: librdkafka leaves three
        behind a Metadata request for all topics.
        """
        source = self.source
        with source.block("def run(view):"):
            source.line(f"at, end, room = 0, len(view), {MOST_ELEMENTS}")
            self._struct(declared, "message")
            self._flush()
            if not declared.__name__.endswith("Request"):
                with source.block("if at != end:"):
                    source.line("raise left_over(at, end)")
            source.line("return message")

    # --- structs and their tags -------------------------------------------------------------

    def _struct(self, declared: type[Any], target: str) -> None:
        self._flush()
        maker = self.source.constant("make", declared.__new__)
        self.source.line(f"{target} = {maker}({self.source.constant('type', declared)})")
        carried: list[tuple[str, Field]] = []
        tags: list[tuple[str, Field]] = []
        for name, field in declared.__fields__.items():
            present = field.versions.include(self._version)
            if not present or field.tag is not None:
                self._default(f"{target}.{name}", field)
            if present:
                (carried if field.tag is None else tags).append((name, field))
        for name, field in carried:
            with self.source.field(f".{name}"):
                nullable = field.nullable.include(self._version)
                self._value(field.kind, f"{target}.{name}", nullable)
        if self._flexible:
            self._tagged_fields(tags, target)

    def _default(self, target: str, field: Field) -> None:
        if field.default_is_fresh:
            made = "[]" if isinstance(field.kind, Array) else self._call(field.default)
            self.source.line(f"{target} = {made}")
        else:
            self.source.line(f"{target} = {self._literal(field.default())}")

    def _call(self, function: Any) -> str:
        return f"{self.source.constant('make', function)}()"

    def _literal(self, value: Any) -> str:
        plain = value is None or isinstance(value, bool | int | str | bytes)
        return repr(value) if plain else self.source.constant("default", value)

    def _tagged_fields(self, tags: list[tuple[str, Field]], target: str) -> None:
        source, count = self.source, self.source.name("count")
        self._unpack("B", count)
        self._flush()
        with source.field(" (tagged fields)"), source.block(f"if {count}:"):
            self._finish_varint(count)
            self._take_room(count)
            if not tags:
                source.line(f"at = skip_tagged_fields(view, at, {count})")
                return
            with source.block(f"if {count} * 2 > end - at:"):
                source.line(f"raise wrong_count({count}, end - at)")
            with source.block(f"for _ in range({count}):"):
                self._one_tagged_field(tags, target)

    def _one_tagged_field(self, tags: list[tuple[str, Field]], target: str) -> None:
        source, tag, stop = self.source, self.source.name("tag"), self.source.name("stop")
        source.line(f"{tag}, at = decode_uvarint(view, at)")
        source.line(f"{stop}, at = decode_uvarint(view, at)")
        source.line(f"{stop} += at")
        with source.block(f"if {stop} > end:"):
            source.line(f"raise wrong_length({stop} - at, end - at)")
        branch = "if"
        for name, field in tags:
            with source.field(f".{name}"), source.block(f"{branch} {tag} == {field.tag}:"):
                nullable = field.nullable.include(self._version)
                self._value(field.kind, f"{target}.{name}", nullable)
                self._flush()
            branch = "elif"
        with source.block("else:"):
            source.line(f"at = {stop}")
        with source.block(f"if at != {stop}:"):
            source.line(f"raise left_over(at, {stop})")

    # --- values -----------------------------------------------------------------------------

    def _value(self, kind: Kind[Any], target: str, nullable: bool) -> None:
        match kind:
            case Fixed(letter):
                self._unpack(letter, target)
            case Uuid():
                raw = self.source.name("raw")
                self._unpack("16s", raw)
                self._after_run.append((f"{target} = uuid_of({raw})", self.source.path))
            case String():
                self._sized(target, nullable, "h", "str(view[at:{stop}], 'utf-8')")
            case Bytes():
                self._sized(target, nullable, "i", "view[at:{stop}].tobytes()")
            case Records():
                self._sized(target, nullable, "i", "view[at:{stop}]")
            case Array(element):
                self._array(element, target, nullable)
            case Nested(declared):
                self._nested(declared, target, nullable)

    def _sized(self, target: str, nullable: bool, letter: str, value: str) -> None:
        source, length, stop = self.source, self.source.name("length"), self.source.name("stop")
        self._length(length, letter)
        null = f"{length} == -1" if nullable else ""
        with self._unless_null(null, target):
            source.line(f"{stop} = at + {length}")
            with source.block(f"if {length} < 0 or {stop} > end:"):
                source.line(f"raise wrong_length({length}, end - at)")
            source.line(f"{target} = {value.format(stop=stop)}")
            source.line(f"at = {stop}")

    def _array(self, element: Kind[Any], target: str, nullable: bool) -> None:
        source, count = self.source, self.source.name("count")
        self._length(count, "i")
        smallest = max(1, self._smallest(element))
        with self._unless_null(f"{count} == -1" if nullable else "", target):
            with source.block(f"if {count} < 0 or {count} * {smallest} > end - at:"):
                source.line(f"raise wrong_count({count}, end - at)")
            self._take_room(count)
            if isinstance(element, Fixed):
                self._fixed_array(element.letter, count, target)
            else:
                self._element_loop(element, count, target)

    def _fixed_array(self, letter: str, count: str, target: str) -> None:
        width = struct.calcsize(">" + letter)
        self.source.line(f"{target} = list(unpack_from(f'>{{{count}}}{letter}', view, at))")
        self.source.line(f"at += {count} * {width}")

    def _element_loop(self, element: Kind[Any], count: str, target: str) -> None:
        source, items, item = self.source, self.source.name("items"), self.source.name("item")
        source.line(f"{items} = {target} = []")
        with source.field("[]"), source.block(f"for _ in range({count}):"):
            self._value(element, item, nullable=False)
            self._flush()
            source.line(f"{items}.append({item})")

    def _nested(self, declared: type[Any], target: str, nullable: bool) -> None:
        null = ""
        if nullable:
            marker = self.source.name("marker")
            self._unpack("b", marker)
            null = f"{marker} < 0"
        self._flush()
        with self._unless_null(null, target):
            inner = target if target.isidentifier() else self.source.name("inner")
            self._struct(declared, inner)
            self._flush()
            if inner != target:
                self.source.line(f"{target} = {inner}")

    def _smallest(self, kind: Kind[Any]) -> int:
        """The fewest bytes that an element can take; bounds a count before it is believed."""
        match kind:
            case Fixed(letter):
                return struct.calcsize(">" + letter)
            case Uuid():
                return 16
            case String():
                return 1 if self._flexible else 2
            case Nested(declared):
                return self._smallest_struct(declared)
        return 1 if self._flexible else 4

    def _smallest_struct(self, declared: type[Any]) -> int:
        total = 1 if self._flexible else 0
        for field in declared.__fields__.values():
            if field.tag is None and field.versions.include(self._version):
                null_struct = field.nullable.include(self._version) and isinstance(
                    field.kind, Nested
                )
                total += 1 if null_struct else self._smallest(field.kind)
        return total

    # --- runs of fixed width ----------------------------------------------------------------

    def _unpack(self, letter: str, target: str) -> None:
        self._run.append((letter, target, self.source.path))

    def _length(self, target: str, letter: str) -> None:
        """Read a length or count into ``target``, -1 for null, whatever the version's spelling."""
        self._unpack("B" if self._flexible else letter, target)
        self._flush()
        if self._flexible:
            self._finish_varint(target)
            self.source.line(f"{target} -= 1")

    def _finish_varint(self, target: str) -> None:
        with self.source.block(f"if {target} > 127:"):
            self.source.line(f"{target}, at = finish_uvarint(view, at, {target})")

    def _take_room(self, count: str) -> None:
        self.source.line(f"room -= {count}")
        with self.source.block("if room < 0:"):
            self.source.line("raise no_room()")

    def _flush(self) -> None:
        """Unpack what has been collected, then make of it what needs making."""
        if self._run:
            letters = "".join(letter for letter, _, _ in self._run)
            path = self._run[0][2]
            if len(self._run) > 1:
                path = f"{path} to {self._run[-1][2]}"
            self._unpack_now(letters, path)
        for line, path in self._after_run:
            self.source.line(line, path)
        self._run, self._after_run = [], []

    def _unpack_now(self, letters: str, path: str) -> None:
        targets = ", ".join(target for _, target, _ in self._run)
        if letters == "B":
            self.source.line(f"{targets} = view[at]", path)
        else:
            comma = "," if len(self._run) == 1 else ""
            unpack = self.source.packer(letters, "unpack_from")
            self.source.line(f"{targets}{comma} = {unpack}(view, at)", path)
        self.source.line(f"at += {struct.calcsize('>' + letters)}")

    def _unless_null(self, null: str, target: str) -> AbstractContextManager[None]:
        """A block for what follows unless ``null`` holds; no block where null is no option."""
        if not null:
            return nullcontext()
        with self.source.block(f"if {null}:"):
            self.source.line(f"{target} = None")
        return self.source.block("else:")
