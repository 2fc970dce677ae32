"""Writes the function that writes one version of one message.

The function returns the message's parts.  All is one part, except that records are
handed on by reference, each as a part of its own between what precedes and follows it.
Fields that the version does not have are left out; one that is None where the version
has no null is a bug of ours and raises.

``put`` appends to the chunks of the part being built; tagged fields, whose size goes
before them, are built in chunks of their own first.
"""

import struct
from typing import Any

from waystation.wire.primitives import UVARINTS, encode_uvarint
from waystation.wire.schema import (
    Array,
    Bytes,
    Field,
    Fixed,
    Kind,
    Nested,
    Records,
    String,
    Uuid,
    size_bytes_of,
)
from waystation.wire.source import Compiled, Source

__all__ = ["compile_encoder"]


def compile_encoder(declared: type[Any], version: int, *, flexible: bool) -> Compiled:
    """Make the writer of ``declared`` in ``version``."""
    title = declared.__name__
    writer = _Encoder(Source(title), version, flexible)
    writer.write(declared)
    return writer.source.compile(f"<encoder of {title} v{version}>")


class _Encoder:
    """Writes the lines; ``run`` collects what can be packed together."""

    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self.source, self._version, self._flexible = source, version, flexible
        self._run: list[tuple[str, str, str]] = []
        self._put = "put"
        source.constants.update(
            UVARINTS=UVARINTS,
            encode_uvarint=encode_uvarint,
            join=b"".join,
            pack=struct.pack,
            size_bytes_of=size_bytes_of,
        )

    def write(self, declared: type[Any]) -> None:
        """Write the whole function."""
        source = self.source
        with source.block("def run(message):"):
            source.line("parts, chunks = [], []")
            source.line("put = chunks.append")
            self._struct(declared, "message")
            self._flush()
            with source.block("if chunks:"):
                source.line("parts.append(join(chunks))")
            source.line("return parts")

    # --- structs and their tags -------------------------------------------------------------

    def _struct(self, declared: type[Any], subject: str) -> None:
        tags: list[tuple[int, str, Field]] = []
        for name, field in declared.__fields__.items():
            if not field.versions.include(self._version):
                continue
            if field.tag is not None:
                tags.append((field.tag, name, field))
                continue
            with self.source.field(f".{name}"):
                nullable = field.nullable.include(self._version)
                self._value(field.kind, f"{subject}.{name}", nullable)
        if self._flexible and tags:
            self._tagged_fields(sorted(tags, key=lambda tag: tag[0]), subject)
        elif self._flexible:
            self._pack("x", "")

    def _tagged_fields(self, tags: list[tuple[int, str, Field]], subject: str) -> None:
        self._flush()
        source, news = self.source, self.source.name("news")
        source.line(f"{news} = []")
        for tag, name, field in tags:
            with source.field(f".{name}"):
                value = source.name("value")
                source.line(f"{value} = {subject}.{name}")
                with source.block(f"if {self._differs(value, field)}:"):
                    self._tagged_field(tag, field, value, news)
        with source.block(f"if {news}:"):
            source.line(f"{self._put}(encode_uvarint(len({news})))")
            source.line(f"{self._put}(join({news}))")
        with source.block("else:"):
            source.line(f"{self._put}(b'\\0')")

    def _tagged_field(self, tag: int, field: Field, value: str, news: str) -> None:
        assert not isinstance(field.kind, Records), "records by reference have no known place here"
        source, chunks = self.source, self.source.name("chunks")
        outer, self._put = self._put, f"{chunks}.append"
        source.line(f"{chunks} = []")
        self._value(field.kind, value, nullable=False)
        self._flush()
        self._put = outer
        body = source.name("body")
        source.line(f"{body} = join({chunks})")
        source.line(
            f"{news}.append({encode_uvarint(tag)!r} + encode_uvarint(len({body})) + {body})"
        )

    def _differs(self, value: str, field: Field) -> str:
        """The test for a value that is worth sending."""
        default = field.default()
        if default is None and isinstance(field.kind, Nested):
            silent = self.source.constant("default", field.kind.default())
            return f"{value} is not None and {value} != {silent}"
        if default is None:
            return f"{value} is not None"
        if isinstance(field.kind, Array):
            return value
        return f"{value} != {self.source.constant('default', default)}"

    # --- values -----------------------------------------------------------------------------

    def _value(self, kind: Kind[Any], value: str, nullable: bool) -> None:
        match kind:
            case Fixed(letter):
                self._pack(letter, value)
            case Uuid():
                self._pack("16s", f"{value}.bytes")
            case String():
                self._sized(f"{value}.encode()", value, nullable, "h")
            case Bytes():
                self._sized(value, value, nullable, "i")
            case Records():
                self._records(value, nullable)
            case Array(element):
                self._array(element, value, nullable)
            case Nested(declared):
                self._nested(declared, value, nullable)

    def _sized(self, octets: str, value: str, nullable: bool, letter: str) -> None:
        source, body, size = self.source, self.source.name("body"), self.source.name("size")
        source.line(
            f"{body} = {octets} if {value} is not None else b''"
            if nullable
            else f"{body} = {octets}"
        )
        source.line(f"{size} = {self._size(f'len({body})', value, nullable)}")
        self._length(size, letter)
        source.line(f"{self._put}({body})")

    def _records(self, value: str, nullable: bool) -> None:
        source, batches, size = self.source, self.source.name("batches"), self.source.name("size")
        source.line(f"{batches} = {value}")
        source.line(f"{size} = {self._size(f'size_bytes_of({batches})', batches, nullable)}")
        self._length(size, "i")
        with source.block(f"if {batches} is not None:"):
            source.line("parts.append(join(chunks))")
            source.line(f"parts.append({batches})")
            source.line("chunks.clear()")

    def _array(self, element: Kind[Any], value: str, nullable: bool) -> None:
        source, items, count = self.source, self.source.name("items"), self.source.name("count")
        source.line(f"{items} = {value}")
        source.line(f"{count} = {self._size(f'len({items})', items, nullable)}")
        self._length(count, "i")
        if isinstance(element, Fixed):
            with source.block(f"if {items}:"):
                source.line(f"{self._put}(pack(f'>{{len({items})}}{element.letter}', *{items}))")
            return
        item = source.name("item")
        some = f"{items} or ()" if nullable else items
        with source.field("[]"), source.block(f"for {item} in {some}:"):
            self._value(element, item, nullable=False)
            self._flush()

    def _nested(self, declared: type[Any], value: str, nullable: bool) -> None:
        source, inner = self.source, value
        if not value.isidentifier():
            inner = source.name("inner")
            source.line(f"{inner} = {value}")
        if not nullable:
            self._struct(declared, inner)
            return
        self._flush()
        with source.block(f"if {inner} is None:"):
            source.line(f"{self._put}(b'\\xff')")
        with source.block("else:"):
            source.line(f"{self._put}(b'\\x01')")
            self._struct(declared, inner)
            self._flush()

    # --- runs of fixed width ----------------------------------------------------------------

    def _pack(self, letter: str, value: str) -> None:
        self._run.append((letter, value, self.source.path))

    def _size(self, size: str, value: str, nullable: bool) -> str:
        """The number that stands for ``size`` on the wire: compact ones are one more, null zero."""
        null = "0" if self._flexible else "-1"
        number = f"{size} + 1" if self._flexible else size
        return f"{null} if {value} is None else {number}" if nullable else number

    def _length(self, size: str, letter: str) -> None:
        """Write the length or count in ``size`` together with what has been collected."""
        if not self._flexible:
            self._pack(letter, size)
            self._flush()
            return
        short, long = f"UVARINTS[{size}]", f"encode_uvarint({size})"
        if self._run:
            run = self._packed()
            self._pack("B", size)
            short, long = self._packed(), f"{run} + {long}"
        self.source.line(f"{self._put}({short} if {size} < 128 else {long})", self._blamed())
        self._run = []

    def _flush(self) -> None:
        if self._run:
            self.source.line(f"{self._put}({self._packed()})", self._blamed())
        self._run = []

    def _packed(self) -> str:
        letters = "".join(letter for letter, _, _ in self._run)
        if letters == "x":
            return r"b'\0'"
        values = ", ".join(value for _, value, _ in self._run if value)
        return f"{self.source.packer(letters, 'pack')}({values})"

    def _blamed(self) -> str:
        if not self._run:
            return self.source.path
        first, last = self._run[0][2], self._run[-1][2]
        return first if first == last else f"{first} to {last}"
