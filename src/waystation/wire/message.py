"""What declared classes can do: be made with defaults, compared, shown, read and written.

A declaration is a class whose fields come from ``schema.field``.  Its instances have
slots, a constructor that takes keywords and knows every default, ``==`` and ``repr``.
A ``Struct`` lives inside a message; a ``Message`` also has versions, and bytes.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar, Self, dataclass_transform

from waystation.wire.compiler import DECODING_FAULTS, ENCODING_FAULTS, Decoders, Encoders
from waystation.wire.schema import Field, size_bytes_of
from waystation.wire.versions import SPOKEN, ApiKey, Spoken

__all__ = ["Message", "Struct"]


@dataclass_transform(kw_only_default=True)
class _StructType(type):
    """Moves the declared fields out of the class body and gives each a slot."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        fields = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        body = {key: value for key, value in namespace.items() if key not in fields}
        body["__slots__"] = tuple(fields)
        body["__fields__"] = fields
        if fields:
            body["__init__"] = _first_constructor(fields)
            body["_values"] = property(_values_getter(tuple(fields)))
        return super().__new__(mcs, name, bases, body, **options)


class Struct(metaclass=_StructType):
    """A group of fields; made with keywords, what is not given has the protocol's default."""

    __fields__: ClassVar[dict[str, Field]]
    _values: ClassVar[Any]

    __hash__ = None  # type: ignore[assignment]  # fields change, so a hash would lie

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._values == other._values)

    def __repr__(self) -> str:
        shown = (
            f"{name}={_shown(getattr(self, name))}"
            for name, field in self.__fields__.items()
            if getattr(self, name) != field.default()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A request or a response of one API, in every version of it that is spoken."""

    api: ClassVar[ApiKey | None]
    spoken: ClassVar[Spoken]
    _decoders: ClassVar[Decoders]
    _encoders: ClassVar[Encoders]

    def __init_subclass__(cls, *, api: ApiKey | None = None, spoken: Spoken | None = None) -> None:
        """Take the versions of ``api`` from the table; ``spoken`` serves what has no API key."""
        assert (api is None) != (spoken is None), f"{cls.__name__}: either api or spoken"
        cls.api = api
        cls.spoken = spoken or SPOKEN[ApiKey(api)]  # type: ignore[arg-type]
        cls._decoders = Decoders(cls, cls.spoken)
        cls._encoders = Encoders(cls, cls.spoken)

    @classmethod
    def decode(cls, view: memoryview, version: int) -> Self:
        """Read a message that fills ``view``; records stay views of it.

        HOT: once per request.  The work is in generated code (benchmarks/wire/produce.py).
        """
        read = cls._decoders[version].function
        try:
            return read(view)  # type: ignore[no-any-return]
        except DECODING_FAULTS as fault:
            raise cls._decoders.refusal(version, fault) from None

    def encode_parts(self, version: int) -> list[Any]:
        """The bytes of ``version`` in order, with records by reference between them.

        A part is bytes or whatever the records fields held, which only its owner knows.
        """
        write = self._encoders[version].function
        try:
            return write(self)  # type: ignore[no-any-return]
        except ENCODING_FAULTS as fault:
            raise self._encoders.complaint(version, fault) from fault

    def encode(self, version: int) -> bytes:
        """The bytes of ``version`` in one piece; records must be in memory."""
        return b"".join(self.encode_parts(version))


def _first_constructor(fields: dict[str, Field]) -> Callable[..., None]:
    """A constructor that, called for the first time, compiles the real one and steps aside.

    There are hundreds of structs and a process uses some: compiling them all would cost
    a start more than everything else it imports.
    """

    def construct(self: Any, **values: Any) -> None:
        made = _constructor(fields)
        type(self).__init__ = made
        made(self, **values)

    return construct


def _constructor(fields: dict[str, Field]) -> Callable[..., None]:
    namespace: dict[str, Any] = {"UNSET": object()}
    signature, body = [], []
    for name, field in fields.items():
        if field.default_is_fresh:
            namespace[f"make_{name}"] = field.default
            signature.append(f"{name}=UNSET")
            body.append(f"    self.{name} = make_{name}() if {name} is UNSET else {name}\n")
        else:
            namespace[f"default_{name}"] = field.default()
            signature.append(f"{name}=default_{name}")
            body.append(f"    self.{name} = {name}\n")
    exec(f"def __init__(self, *, {', '.join(signature)}):\n{''.join(body)}", namespace)
    return namespace["__init__"]  # type: ignore[no-any-return]


def _values_getter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    return attrgetter(*names)


def _shown(value: Any) -> str:
    """Payloads by their size only: a message is shown in logs."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{size_bytes_of(value)} bytes>"
    return repr(value)
