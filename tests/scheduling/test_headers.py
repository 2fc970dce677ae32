"""What clients may say about time, and how they are told what they may not."""

import pytest

from waystation.model.errors import ErrorCode
from waystation.model.offsets import Millis
from waystation.records.record import Headers
from waystation.scheduling.errors import InvalidScheduleError
from waystation.scheduling.headers import check_rows, timing_of
from waystation.scheduling.settings import ScheduleSettings
from waystation.scheduling.times import duration_of, instant_of

NOW = Millis(1_800_000_000_000)  # 2027-01-15T08:00:00Z
DAY_MS = 86_400_000


def said(**headers: str) -> Headers:
    return tuple((name.replace("_", "-"), value.encode()) for name, value in headers.items())


def refusal(headers: Headers, *, settings: ScheduleSettings | None = None) -> str:
    with pytest.raises(InvalidScheduleError) as caught:
        check_rows([(7, NOW, None, b"", headers)], NOW, settings or ScheduleSettings())
    assert caught.value.code is ErrorCode.INVALID_RECORD
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1800000000000", 1_800_000_000_000),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000),
        ("2027-01-15T09:00:00+01:00", 1_800_000_000_000),
        ("2027-01-15 08:00:00.250Z", 1_800_000_000_250),
        ("20270115T080000Z", 1_800_000_000_000),
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_a_moment_is_a_number_or_iso_8601(text: str, moment: int) -> None:
    assert instant_of(text) == moment


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("300000", 300_000),
        ("5m", 300_000),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2w1d", 15 * DAY_MS),
        ("PT5M", 300_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("P1W", 7 * DAY_MS),
    ],
)
def test_a_duration_is_a_number_or_units_or_iso_8601(text: str, duration_ms: int) -> None:
    assert duration_of(text) == duration_ms


def test_what_is_finer_than_a_millisecond_is_never_early() -> None:
    assert instant_of("2027-01-15T08:00:00.000001Z") == 1_800_000_000_001
    assert duration_of("0.0001s") == 1


def test_after_counts_from_the_timestamp_of_the_record() -> None:
    assert timing_of(said(deliver_after="5m"), NOW).due == NOW + 300_000


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ((), "exactly one of the headers deliver-at, deliver-after and deliver-cron; found none"),
        (said(deliver_at="1", deliver_after="1"), "found deliver-at and deliver-after"),
        (said(deliver_at="soon"), "deliver-at is 'soon', must be epoch milliseconds or"),
        (said(deliver_at="2027-01-15T08:00:00"), "has no time zone: add Z or an offset"),
        (said(deliver_at="2027-02-30T08:00:00Z"), "must be epoch milliseconds or"),
        (said(deliver_at="-5"), "must be epoch milliseconds or"),
        (said(deliver_at="1_800_000_000_000"), "must be epoch milliseconds or"),
        (said(deliver_at="9" * 30), "must be epoch milliseconds or"),
        (said(deliver_after="P1Y"), "years and months have no fixed length, say it in days"),
        (said(deliver_after="5 minutes"), "a duration such as 90s, 1h30m or PT1H30M"),
        (said(deliver_after="P"), "a duration such as 90s"),
        (said(deliver_after="-5m"), "a duration such as 90s"),
        (said(deliver_after="9" * 18), "further away than the horizon of 3653 days"),
        ((("deliver-at", None),), "deliver-at has no value"),
        ((("deliver-at", NOW.to_bytes(8, "big")),), "send the digits of a number, not its bytes"),
        ((*said(deliver_at="1"), *said(deliver_at="2")), "deliver-at is there twice"),
        (said(deliver_at="1800000000"), "was it meant in seconds?"),
        (said(deliver_at=f"{NOW}000"), "was it meant in microseconds?"),
        (said(deliver_at="2999-01-01T00:00:00Z"), "raise schedule.horizon.ms"),
        (said(deliver_at=str(NOW - 2 * DAY_MS)), "raise schedule.past.max.ms"),
        (said(deliver_at=str(NOW), deliver_zone="UTC"), "deliver-zone is for deliver-cron"),
        (said(deliver_cron="61 * * * *"), "has '61' as minute: must be from 0 to 59"),
        (said(deliver_cron="* * * *"), "has 4 fields instead of five"),
        (said(deliver_cron="0 0 31 feb *"), "never comes"),
        (said(deliver_cron="0 0 * * *", deliver_zone="Mars/Base"), "must be a time zone such as"),
        (said(deliver_cron="0 0 * * *", deliver_zone="../etc/x"), "must be a time zone such as"),
    ],
)
def test_a_refusal_names_the_culprit_and_the_remedy(headers: Headers, told: str) -> None:
    refused = refusal(headers)

    assert refused.startswith("record 0 of the batch: ")
    assert told in refused


def test_what_has_just_passed_is_due_at_once() -> None:
    rows = [(0, NOW, None, b"", said(deliver_at=str(NOW - DAY_MS)))]

    assert check_rows(rows, NOW, ScheduleSettings()) == 0


def test_a_batch_is_refused_for_its_first_bad_record() -> None:
    good = (0, NOW, None, b"", said(deliver_at=str(NOW)))
    bad = (1, NOW, None, b"", said(deliver_at="x"))

    with pytest.raises(InvalidScheduleError) as caught:
        check_rows([good, bad, bad], NOW, ScheduleSettings())

    assert caught.value.index == 1


def test_other_headers_are_nobodys_business() -> None:
    headers = (*said(trace="1", deliver_at="1800000000001"), ("trace", None))

    assert timing_of(headers, NOW) == (1_800_000_000_001, None)
