"""Regular expressions over topic names, against Python's engine where that one is safe."""

import re
import time
from contextlib import suppress
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.groups.pattern_syntax import ALPHABET
from waystation.groups.patterns import Pattern
from waystation.model.errors import InvalidRegexError

NAMES = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "abc",
    "aab",
    "abab",
    "a.b",
    "a-b_c",
    "A",
    "aB",
    "a1",
    "bbb",
    "c0",
]

atoms = st.sampled_from(
    ["a", "b", "c", r"\.", ".", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\W", "[^a-]", "^", "$"]
)


def repeated(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    marks = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"])
    return st.builds(lambda node, mark: f"(?:{node}){mark}", inner, marks)


expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda ways: f"({'|'.join(ways)})"),
        repeated(inner),
    ),
    max_leaves=8,
)


@given(expressions, st.lists(st.text("abc1.-AB", max_size=8), max_size=8))
def test_the_same_names_match_as_in_pythons_engine(regex: str, more: list[str]) -> None:
    names = [*NAMES, *more]
    expected = sorted(name for name in names if re.fullmatch(regex, name))

    assert list(Pattern(regex).select(names)) == expected


@pytest.mark.parametrize(
    ("regex", "matches", "does_not"),
    [
        ("orders", ["orders"], ["orders1", "my-orders", "order"]),
        ("orders|events", ["orders", "events"], ["ordersevents"]),
        ("", [], ["a"]),
        ("(?i)ORD.*", ["orders", "Ord"], ["rd"]),
        ("(?i:O)rd", ["ord", "Ord"], ["oRd"]),
        ("a(?i)b|c", ["ab", "aB", "C"], ["Ab"]),
        ("(?i)[^a]b", ["cB"], ["ab", "Ab"]),
        (r"\Qa.b*\E.*", [], ["a.b", "axb"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\Qab\E+", ["ab", "abb"], ["abab"]),
        (r"[[:alpha:]]+-[[:^digit:]]", ["ab-c"], ["ab-1"]),
        (r"\pL\p{Nd}\PN", ["a1b"], ["11b", "a12"]),
        (r"\x61\x{62}", ["ab"], ["ba"]),
        (r".*\bfoo\b.*", ["foo", "a.foo-b"], ["afoo", "foo_b"]),
        (r"a\B.*", ["ab"], ["a.b", "a"]),
        (r"\Aa\z", ["a"], ["ab"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{,2}", [], ["a", "aa"]),
        ("[]a]", ["a"], ["b"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d.]+", ["1.2"], ["1a"]),
        (r"é|\n|a", ["a"], ["b"]),
    ],
)
def test_re2s_syntax(regex: str, matches: list[str], does_not: list[str]) -> None:
    assert list(Pattern(regex).select([*matches, *does_not])) == sorted(matches)


@pytest.mark.parametrize(
    "regex",
    [
        "(",
        ")",
        "a)",
        "*",
        "a**",
        "a|*",
        "[",
        "[a",
        "[z-a]",
        "[[:nope:]]",
        r"\p{Klingon}",
        "a{3,2}",
        "a{1001}",
        r"(a)\1",
        "(?P=name)",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?>a)",
        "(?#c)",
        "(?P<>a)",
        "(?P<1a>a)",
        "\\",
        r"\x{110000}",
        r"\xg1",
        r"\k",
        "(" * 51 + ")" * 51,
        "a" * 1_001,
        "(((a{10}){10}){10}){10}",
        "(((){1000}){1000}){1000}",
    ],
)
def test_what_cannot_be_matched_safely_is_refused_with_its_reason(regex: str) -> None:
    with pytest.raises(InvalidRegexError) as refused:
        Pattern(regex)

    assert str(refused.value)


@pytest.mark.parametrize(
    "regex",
    ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*a){12}b", "(a|aa)+b", "([a-z]+)*[a-z]+0", ".*.*.*.*0"],
)
def test_patterns_that_explode_elsewhere_take_no_time(regex: str) -> None:
    names = ["a" * 249, "ab" * 124, "a" * 200 + "b", ascii_lowercase * 9]
    pattern = Pattern(regex)

    started = time.perf_counter()
    pattern.select(names)

    assert time.perf_counter() - started < 1


def test_ten_thousand_names_are_matched_quickly() -> None:
    names = [f"team-{i % 7}.orders-{i}" for i in range(10_000)]
    pattern = Pattern(r"team-[1-3]\.orders-\d+|payments\..*")

    started = time.perf_counter()
    found = pattern.select(names)

    assert len(found) == sum(i % 7 in (1, 2, 3) for i in range(10_000))
    assert time.perf_counter() - started < 0.5


@given(st.text(max_size=30))
def test_any_text_is_a_pattern_or_refused(regex: str) -> None:
    with suppress(InvalidRegexError):
        Pattern(regex).select(NAMES)


@given(st.text("()[]{}|*+?\\^$.,-:<>PQExpidw0123ai=!", max_size=12))
def test_any_jumble_of_signs_is_a_pattern_or_refused(regex: str) -> None:
    try:
        found = Pattern(regex).select(NAMES)
    except InvalidRegexError:
        return

    assert set(found) <= set(NAMES)


def test_the_alphabet_is_that_of_topic_names() -> None:
    assert (
        frozenset("".join(re.findall(r"[a-zA-Z0-9._-]", "".join(map(chr, range(256)))))) == ALPHABET
    )
