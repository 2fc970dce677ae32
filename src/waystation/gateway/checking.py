"""What comes in, checked against the route that was called.

``Checked`` is made once per route and holds its decoders.  Every mistake is told with the field it
was made in.
"""

import asyncio
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from waystation.gateway.problems import Problem, ProblemError, refusal
from waystation.gateway.routes import JSON, NDJSON, Route
from waystation.gateway.slicing import SLICE_BYTES, sliced
from waystation.gateway.suggesting import choices_at, did_you_mean, fields_at

__all__ = ["NOT_JSON", "Checked", "decoded"]

_AT: Final = re.compile(r" - at `(?:key in )?\$(?:\.|\[\.\.\.\]\.?)?([^`]*)`$")
_NAMED: Final = re.compile(r"^Object (contains unknown|missing required) field `([^`]*)`")
_CHOSEN: Final = re.compile(r"^Invalid (?:enum )?value '([^']*)'")
_CHARSET: Final = re.compile(rb";\s*charset\s*=\s*\"?([^\s;\"]*)", re.IGNORECASE)
_UTF8: Final = (b"utf-8", b"utf8", b"us-ascii")
_MOST_PARAMETERS: Final = 50
NOT_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_FITTING: Final = "GET /openapi.json says what fits"


class Checked:
    """One route with its decoders."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._names = route.names
        self._params = route.parameters

    def parameters(self, values: list[str], query: bytes) -> Any:
        """The parameters of the path, of which ``values`` are the parts, and of the query."""
        if self._params is None:
            for name in _query(query) if query else ():
                raise self._unknown(name)
            return None
        given: dict[str, str] = dict(zip(self._names, values, strict=True))
        if query:
            for name, value in _query(query).items():
                if name in given or name not in self._known:
                    raise self._unknown(name)
                given[name] = value
        try:
            return msgspec.convert(given, self._params, strict=False)
        except msgspec.ValidationError as error:
            raise _invalid("parameter", error, self._params) from None

    async def body(self, body: bytes, headers: Mapping[bytes, bytes]) -> Any:
        """The body as the route's type, or as a list of it if it came as NDJSON."""
        if not body and self.route.body_optional:
            body = b"{}"
        elif self._is_lines(headers.get(b"content-type", b"")):
            return await self._lines(body)
        if self.route.lines is not None and len(body) > SLICE_BYTES:
            try:
                return await sliced(body, self._decoder.decode)
            except NOT_JSON as error:
                raise _told(error, self.route.body) from None
        try:
            return decoded(self._decoder.decode, body)
        except ProblemError as error:
            if self.route.many and _is_many(error.problem, body):
                raise ProblemError(self._elsewhere(error.problem)) from None
            raise

    def check_media_type(self, headers: Mapping[bytes, bytes]) -> None:
        """A problem if the body comes as something else than the route takes."""
        self._is_lines(headers.get(b"content-type", b""))

    async def _lines(self, body: bytes) -> list[Any]:
        """All lines, in slices: the loop turns in between."""
        found: list[Any] = []
        begin = 0
        while begin < len(body):
            end = body.find(b"\n", begin + SLICE_BYTES) + 1 or len(body)
            part = body[begin:end]
            try:
                found += self._line_decoder.decode_lines(part)
            except NOT_JSON:
                self._tell_line(part, body.count(b"\n", 0, begin))
                raise
            begin = end
            await asyncio.sleep(0)
        return found

    def _tell_line(self, part: bytes, before: int) -> None:
        """Raise the problem of the first line that is wrong, with its number."""
        for number, line in enumerate(part.splitlines(), before + 1):
            if line.strip():
                decoded(self._line_decoder.decode, line, f"line {number}")

    def _is_lines(self, content_type: bytes) -> bool:
        """Whether the body is NDJSON; a problem if it is neither that nor JSON."""
        if content_type == b"application/json" and JSON in self.route.media_types:
            return False
        plain = content_type.partition(b";")[0].strip().lower().decode("latin-1")
        if plain == NDJSON and self.route.lines is not None:
            _check_charset(content_type)
            return True
        if plain in self.route.media_types or "*/*" in self.route.media_types:
            _check_charset(content_type)
            return False
        fitting = [*self.route.media_types, *([NDJSON] if self.route.lines is not None else [])]
        error = refusal(
            415,
            "unsupported-media-type",
            f"the body comes as {plain!r}" if plain else "the body's type is not said",
            field="Content-Type",
            remedy=f"send it as {' or '.join(fitting)}",
        )
        if self.route.many and plain == NDJSON:
            raise ProblemError(self._elsewhere(error.problem))
        raise error

    def _elsewhere(self, problem: Problem) -> Problem:
        remedy = f"many at once go to POST {self.route.many}; here {problem.remedy}"
        return msgspec.structs.replace(problem, remedy=remedy)

    def _unknown(self, name: str) -> ProblemError:
        known = [one for one in self._known if one not in self._names]
        return refusal(
            400,
            "invalid-parameter",
            f"there is no parameter {name!r} in the query of this call",
            field=name,
            remedy=did_you_mean(name, known) if known else "leave it away: the call has none",
        )

    @cached_property
    def _known(self) -> tuple[str, ...]:
        return () if self._params is None else fields_at(self._params, "")

    @cached_property
    def _decoder(self) -> "msgspec.json.Decoder[Any]":
        return msgspec.json.Decoder(self.route.body)

    @cached_property
    def _line_decoder(self) -> "msgspec.json.Decoder[Any]":
        return msgspec.json.Decoder(self.route.lines)


def _check_charset(content_type: bytes) -> None:
    """Refuse a body that says of itself not to be UTF-8; JSON is nothing else."""
    named = _CHARSET.search(content_type)
    if named is not None and named[1].lower() not in _UTF8:
        raise refusal(
            415,
            "unsupported-charset",
            f"the body comes as {named[1].decode('latin-1')!r}",
            field="Content-Type",
            remedy="send it as UTF-8, charset=utf-8",
        )


def decoded(decode: Any, body: bytes, at: str | None = None) -> Any:
    """What came, as its type; a problem that names the field if it is not that."""
    try:
        return decode(body)
    except NOT_JSON as error:
        raise _told(error, decode.__self__.type, at) from None


def _told(error: Exception, kind: Any, at: str | None = None) -> ProblemError:
    if isinstance(error, msgspec.ValidationError):
        return _invalid("field", error, kind, at)
    return refusal(
        400,
        "malformed-json",
        f"{at or 'the body'} is not JSON: {error}",
        field=at or "body",
        remedy="send JSON in UTF-8; if you do, something on the way has cut it",
    )


def _is_many(problem: Problem, body: bytes) -> bool:
    """Whether what is wrong with ``body`` is that it holds several where one is taken."""
    return problem.field in ("messages", "records") or body.lstrip()[:1] == b"["


def _query(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except (UnicodeError, ValueError) as error:
        raise refusal(
            400,
            "malformed-query",
            f"the query cannot be read: {error}",
            remedy="UTF-8, percent-encoded: name=value&name=value",
        ) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise refusal(
                400,
                "invalid-parameter",
                f"parameter {name!r} is given more than once",
                field=name,
                remedy="give it once",
            )
        found[name] = value
    return found


def _invalid(
    what: str, error: msgspec.ValidationError, kind: Any, line: str | None = None
) -> ProblemError:
    """The problem of what does not fit a ``kind``, with the field, and what would fit there."""
    told = str(error)
    at = _AT.search(told)
    field = at[1] if at else ""
    remedy = _FITTING
    if named := _NAMED.match(told):
        how, name = named.groups()
        known = fields_at(kind, field)
        remedy = f"add {name}; {_FITTING}" if how == "missing required" else remedy
        if how == "contains unknown" and known:
            remedy = did_you_mean(name, known)
        field = f"{field}.{name}" if field else name
    elif (chosen := _CHOSEN.match(told)) and (known := choices_at(kind, field)):
        remedy = did_you_mean(chosen[1], known)
    return refusal(
        400,
        f"invalid-{what}",
        told.replace("`", "'"),
        field=": ".join(filter(None, (line, field))) or "body",
        remedy=remedy,
    )
