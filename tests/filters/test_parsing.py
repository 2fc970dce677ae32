"""Every error of an expression: its sentence, and the place that it marks."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.soak import count
from waystation.filters.lexing import EXPRESSION_CHARACTERS
from waystation.filters.parsing import DEEPEST
from waystation.filters.selecting import Filter
from waystation.model.errors import ErrorCode, InvalidFilterError

FIELDS = (
    "key, value, value.<name>, headers.<name>, timestamp, partition and offset are what a "
    "message has"
)

# An expression, what is marked of it, and the sentence.
WRONG = [
    ("", "", "the expression is empty; write a condition, as in key = 'a'"),
    ("  ", "", "the expression is empty; write a condition, as in key = 'a'"),
    (
        "country = 'DE'",
        "country",
        f"unknown field country: {FIELDS}; do you mean value.country or headers.country?",
    ),
    (
        "headers.content-type = 'a'",
        "type",
        f'unknown field type: {FIELDS}; if - is part of a name, quote it, as in headers."x-type"',
    ),
    ("key = 5", "5", "a text cannot be compared with a number; write CAST(key AS NUMBER)"),
    (
        'headers."a b" < 5',
        "5",
        'a text cannot be compared with a number; write CAST(headers."a b" AS NUMBER)',
    ),
    (
        "offset = '5'",
        "'5'",
        "a number cannot be compared with a text; a number or boolean stands without quotes",
    ),
    ("offset = TRUE", "TRUE", "a number cannot be compared with a boolean"),
    (
        "timestamp > '2026-01-01'",
        "'2026-01-01'",
        "a timestamp cannot be compared with a text; write TIMESTAMP in front of the text, as in "
        "TIMESTAMP '2026-01-31T09:30:00Z'",
    ),
    (
        "value.a < TRUE",
        "TRUE",
        "booleans have no order, so < means nothing; compare them with = or <>",
    ),
    ("key = NULL", "NULL", "= NULL is never true; write IS NULL"),
    ("key <> null", "null", "<> NULL is never true; write IS NOT NULL"),
    ("key IN ('a', NULL)", "NULL", "NULL in a list is equal to nothing; write OR ... IS NULL"),
    ("offset BETWEEN NULL AND 3", "NULL", "BETWEEN with NULL is never true; write a lower limit"),
    ("offset BETWEEN 1 AND NULL", "NULL", "BETWEEN with NULL is never true; write an upper limit"),
    ('value.a = "x"', '"x"', "a text stands in single quotes: 'x'"),
    ("key == 'a'", "==", "== means nothing here; equality is written ="),
    ("key = 'a' && TRUE", "&&", "&& means nothing here; write AND"),
    ("key = 'a' || 'b'", "||", "|| means nothing here; write OR; texts cannot be joined"),
    ("!TRUE", "!", "! means nothing here; write NOT"),
    ("offset % 2 = 0", "%", "% means nothing here; there is no remainder"),
    (
        "TRUE;",
        ";",
        "; means nothing here; an expression is one condition and has no end sign",
    ),
    (
        "value.größe = 1",
        "ö",
        "'ö' means nothing here; a name with other characters than letters, digits and _ is put "
        'in double quotes, as in headers."content-type"',
    ),
    ("key = 'a", "'", "the text that begins here has no end; close it with '"),
    ('value."a = 1', '"', 'the quoted name that begins here has no end; close it with "'),
    ("offset = 5a", "5a", "5a is neither a number nor a name"),
    ("offset = 1e999", "1e999", "this number is too large; the largest is about 1.8e308"),
    ("key = '\ud800'", "\ud800", "half a character; write the whole of it"),
    ("(key = 'a'", "", "expected an operator or ), found the end of the expression"),
    ("key = 'a')", ")", "expected AND, OR or the end of the expression, found )"),
    ("key = 'a' 'b'", "'b'", "expected AND, OR or the end of the expression, found 'b'"),
    ("NOT", "", "expected a field, a value or (, found the end of the expression"),
    ("key = AND", "AND", "expected a field, a value or (, found AND"),
    ("key NOT 'a'", "'a'", "expected LIKE, IN or BETWEEN behind NOT, found 'a'"),
    ("key IS 5", "5", "expected NULL or NOT NULL behind IS, found 5"),
    ("key IN 'a'", "'a'", "expected a list in parentheses behind IN, found 'a'"),
    ("key IN ()", ")", "expected a text, number, boolean or timestamp, found )"),
    ("key IN ('a' 'b')", "'b'", "expected a comma or the end of the list, found 'b'"),
    (
        "key IN (value)",
        "value",
        "value is a name, and here stands a text, number, boolean or timestamp",
    ),
    ("key IN ('a', 5)", "5", "a text cannot be compared with a number; write CAST(key AS NUMBER)"),
    (
        "value.a IN ('a', 5)",
        "5",
        "a text cannot be compared with a number; write CAST(value.a AS NUMBER)",
    ),
    ("offset BETWEEN 1 OR 2", "OR", "expected AND and an upper limit behind BETWEEN, found OR"),
    ("key LIKE key", "key", "expected a pattern in single quotes, found key"),
    ("offset LIKE 'a'", "offset", "LIKE compares texts, and this is a number"),
    ("key LIKE 'a!b' ESCAPE '!'", "'a!b'", "behind the escape character ! comes %, _ or ! itself"),
    ("key LIKE 'a' ESCAPE '!!'", "'!!'", "ESCAPE takes one character, which is neither % nor _"),
    ("key LIKE 'a' ESCAPE '%'", "'%'", "ESCAPE takes one character, which is neither % nor _"),
    (
        f"key LIKE '%{'a' * 64}_%'",
        f"'%{'a' * 64}_%'",
        "what stands between two % and has a _ may have 64 characters in all of the expression; "
        "leave a _ out, or the % on one side",
    ),
    ("offset + key > 1", "key", "+ takes numbers, and this is a text; write CAST(key AS NUMBER)"),
    ("'a' * 2 > 1", "'a'", "* takes numbers, and this is a text"),
    (
        "timestamp * 2 > 1",
        "2",
        "a timestamp * a number means nothing; milliseconds can be added to a timestamp, and "
        "timestamps subtracted",
    ),
    ("key", "key", "this is a text and no condition; compare it, as in x = 1"),
    ("TRUE AND 1 + 1", "1 + 1", "this is a number and no condition; compare it, as in x = 1"),
    (
        "(key = 'a') = TRUE",
        "(key = 'a')",
        "this is a condition and no value; conditions are joined with AND, OR and NOT",
    ),
    ("1 = 1 = 1", "=", "a comparison has two sides; join two with AND, not = twice"),
    ("CAST(key AS TEXT) = 'a'", "TEXT", "expected NUMBER, BOOLEAN or TIMESTAMP, found TEXT"),
    ("CAST(key) = 1", ")", "expected AS and a kind, found )"),
    ("CAST key AS NUMBER = 1", "key", "expected ( behind CAST, found key"),
    ("CAST(key AS NUMBER = 1", "=", "expected the end of CAST, ), found ="),
    (
        "CAST(offset AS NUMBER) = 1",
        "offset",
        "CAST reads texts and fields of documents, and this is a number",
    ),
    (
        "timestamp > TIMESTAMP 'noon'",
        "'noon'",
        "this is no time; write it as 2026-01-31, 2026-01-31T09:30:00Z or "
        "2026-01-31 09:30:00.250+01:00",
    ),
    ("headers = 'a'", "headers", "which header? write headers.<name>"),
    (
        "headers.a.b = 'x'",
        ".",
        'a header has no fields; if its name has a dot, write headers."a.b"',
    ),
    ("key.a = 'x'", ".", "key has no fields"),
    ("offset[0] = 1", "[", "offset has no fields"),
    ("value. = 1", "=", "expected a name behind the dot, found ="),
    (
        "value[1.5] = 1",
        "1.5",
        "in brackets stands a name in single quotes, or the number of a member",
    ),
    (
        "headers[0] = 'a'",
        "0",
        "in brackets stands a name in single quotes, or the number of a member",
    ),
    ("value[0 = 1", "=", "expected ], found ="),
    ("value" + ".a" * (DEEPEST - 1) + "[0].b = 1", ".", "a path may have 32 steps"),
]


@pytest.mark.parametrize(("expression", "marked", "sentence"), WRONG)
def test_an_error_says_what_is_wrong_and_marks_it(
    expression: str, marked: str, sentence: str
) -> None:
    with pytest.raises(InvalidFilterError) as raised:
        Filter(expression)

    assert raised.value.problem == sentence
    assert expression[raised.value.at : raised.value.end] == marked
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_the_place_is_shown_below_the_expression() -> None:
    with pytest.raises(InvalidFilterError) as raised:
        Filter("key LIKE 'a%' AND contry = 'DE'")

    assert str(raised.value).splitlines()[1:] == [
        "  key LIKE 'a%' AND contry = 'DE'",
        "                    ^^^^^^",
    ]


def test_of_a_long_expression_the_surroundings_are_shown() -> None:
    with pytest.raises(InvalidFilterError) as raised:
        Filter("key = 'a' OR " * 40 + "contry = 'DE' OR " + " OR ".join(["key = 'b'"] * 40))

    _, line, carets = str(raised.value).splitlines()
    assert line.startswith("  …")
    assert line.endswith("…")
    assert len(line) < 82
    assert line[carets.index("^") : carets.rindex("^") + 1] == "contry"


def test_of_many_lines_the_one_is_shown() -> None:
    with pytest.raises(InvalidFilterError) as raised:
        Filter("key = 'a'\n\tAND contry = 'DE'\n\tAND TRUE")

    assert str(raised.value).splitlines()[1:] == ["   AND contry = 'DE'", "       ^^^^^^"]


@pytest.mark.parametrize(
    "expression",
    [
        "(" * DEEPEST + "key = 'a'" + ")" * DEEPEST,
        "offset = " + "-" * DEEPEST + "1",
        "offset = 1" + " + 1" * DEEPEST,
        " OR ".join(["NOT key = 'a' AND TRUE"] * 150),
        "NOT " * 1_000 + "TRUE",
        "key IN (" + ", ".join(["'a'"] * 800) + ")",
        "value" + ".a" * DEEPEST + " = 1",
    ],
)
def test_what_is_large_and_within_bounds_works(expression: str) -> None:
    assert not Filter(expression).matches(b"b", b"1", offset=99) or "NOT" in expression


@pytest.mark.parametrize(
    "expression",
    [
        "(" * (DEEPEST + 1) + "key = 'a'" + ")" * (DEEPEST + 1),
        "offset = " + "-" * (DEEPEST + 1) + "1",
        "offset = 1" + " + 1" * (DEEPEST + 1),
        "(" * 4_000,
        "offset = " + "-" * 4_000,
        "CAST(" * 500,
    ],
)
def test_depth_is_bounded(expression: str) -> None:
    with pytest.raises(InvalidFilterError) as raised:
        Filter(expression)

    assert raised.value.problem == "this is nested deeper than 32 levels; write it with fewer"


def test_length_is_bounded() -> None:
    expression = "key = 'a'".ljust(EXPRESSION_CHARACTERS)
    Filter(expression)

    with pytest.raises(InvalidFilterError, match="has 4097 characters, 4096 are allowed"):
        Filter(expression + " ")


def error_of(expression: str) -> InvalidFilterError | None:
    try:
        Filter(expression)
    except InvalidFilterError as error:
        return error
    return None


_WORDS = (  # noqa: SIM905 - as one would type them
    "key value headers timestamp partition offset value.a headers.b value[0] AND OR NOT IN IS NULL "
    "LIKE ESCAPE BETWEEN CAST AS NUMBER BOOLEAN TIMESTAMP TRUE FALSE ( ) ( ) , . [ ] = <> != < <= "
    "> >= + - * / 'a' '%_' '2026-01-31' 1 2.5 1e5 \"x\" ' \" ö ; !"
).split()


@settings(max_examples=count(200, 50_000), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(_WORDS), max_size=25).map(" ".join) | st.text(max_size=60))
def test_whatever_is_typed_is_a_filter_or_an_error_with_a_place(expression: str) -> None:
    error = error_of(expression)

    if error is None:
        Filter(expression).matches(b"a", b'{"a": 1}', [("b", b"a")])
    else:
        assert 0 <= error.at <= error.end <= len(expression)
        assert "^" in str(error).splitlines()[-1]


@settings(max_examples=count(100, 20_000), deadline=None)
@given(st.data())
def test_a_filter_with_a_token_missing_or_twice_is_an_error_or_a_filter(
    data: st.DataObject,
) -> None:
    right = (  # noqa: SIM905
        "NOT ( value.a [ 0 ] + 2 * - offset / 3 > 1.5 AND key LIKE 'a%' ESCAPE '!' OR headers.b IN "
        "( 'x' , 'y' ) ) AND CAST ( value.b AS TIMESTAMP ) BETWEEN TIMESTAMP '2026-01-31' AND "
        "timestamp + 5 AND value.c IS NOT NULL"
    ).split()
    at = data.draw(st.integers(0, len(right) - 1))
    other = data.draw(st.sampled_from([[], [right[at]] * 2, [data.draw(st.sampled_from(_WORDS))]]))
    expression = " ".join([*right[:at], *other, *right[at + 1 :]])

    error = error_of(expression)

    assert error is None or error.at <= error.end


def test_keywords_and_the_first_name_of_a_field_have_no_case() -> None:
    assert Filter("KEY like 'a%' and Value.In is NOT null").matches(b"ab", b'{"In": 1}')


def test_names_inside_a_document_and_of_headers_have_case() -> None:
    assert not Filter("value.A = 1").matches(None, b'{"a": 1}')
    assert not Filter("headers.A = '1'").matches(None, None, [("a", b"1")])
