"""Messages for later, by our own client against a real broker."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from waystation import Admin, Consumer, Producer
from waystation.client.schedule_descriptions import MessageId, Place
from waystation.client.schedules import Schedules
from waystation.model.errors import InvalidRecordError, InvalidRequestError, InvalidTopicError
from waystation.scheduling.errors import NotPendingError

FAR_MS = 3_600_000
SCHEDULED = {"schedule.enable": "true"}


def now_ms() -> int:
    return int(time.time() * 1_000)


@pytest.fixture
async def schedules(bootstrap: str, topic: str) -> AsyncIterator[Schedules]:
    """Of a topic with two partitions."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 2, configs=SCHEDULED)
        yield admin.schedules(topic)


@pytest.fixture
async def producer(bootstrap: str) -> AsyncIterator[Producer]:
    async with Producer(bootstrap) as running:
        yield running


async def delivered(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, int]]:
    """The first messages of a topic, each with the moment of its delivery."""
    found: list[tuple[bytes | None, int]] = []
    async with Consumer(topics=[topic], bootstrap=bootstrap, start="earliest") as consumer:
        async with asyncio.timeout(20):
            while len(found) < count:
                found += [(m.value, m.timestamp) for m in await consumer.poll(timeout_ms=500)]
    return found


# --- sending ------------------------------------------------------------------------------------


async def test_a_message_comes_at_its_time_and_not_before(
    bootstrap: str, schedules: Schedules, producer: Producer
) -> None:
    due = now_ms() + 700
    sent = await producer.send(
        schedules.topic, "later", key="k", headers={"a": "b"}, deliver_at=due
    )

    assert sent.topic == schedules.companion
    assert (await schedules.get(sent)).due == due

    ((value, at_ms),) = await delivered(bootstrap, schedules.topic, 1)

    assert value == b"later"
    assert at_ms >= due
    with pytest.raises(NotPendingError, match="delivered"):
        await schedules.get(sent)


async def test_what_is_due_first_comes_first(
    bootstrap: str, schedules: Schedules, producer: Producer
) -> None:
    base = now_ms() + 500
    for ahead in (300, 100, 200):
        await producer.send(schedules.topic, f"{ahead}", partition=0, deliver_at=base + ahead)
    await producer.send(schedules.topic, "delay", partition=0, deliver_after="1ms")

    found = await delivered(bootstrap, schedules.topic, 4)

    assert [value for value, _ in found] == [b"delay", b"100", b"200", b"300"]


async def test_a_delay_counts_from_when_the_broker_took_the_message(
    schedules: Schedules, producer: Producer
) -> None:
    before = now_ms()
    sent = await producer.send(schedules.topic, "v", deliver_after=timedelta(hours=1))
    found = await schedules.get(sent)

    assert before + FAR_MS - 50 <= found.due <= now_ms() + FAR_MS + 50
    assert found.due - found.sent == FAR_MS


async def test_a_recurring_message_says_what_it_follows(
    bootstrap: str, schedules: Schedules, producer: Producer
) -> None:
    sent = await producer.send(
        schedules.topic, "daily", deliver_cron="0 7 * * *", deliver_zone="Europe/Berlin"
    )
    first = await schedules.get(sent)
    assert (first.cron, first.zone) == ("0 7 * * *", "Europe/Berlin")

    await schedules.retime(sent, now_ms())
    assert (await delivered(bootstrap, schedules.topic, 1))[0][0] == b"daily"
    following = await schedules.get(sent)

    assert following.due == first.due, "only that time was another"
    await schedules.cancel(sent)
    assert await schedules.count() == 0


async def test_a_topic_that_keeps_nothing_for_later_is_refused_at_once(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic)
        with pytest.raises(InvalidRequestError, match=r"schedule\.enable=true"):
            await producer.send(topic, "v", deliver_after=1)
        with pytest.raises(InvalidRequestError, match=r"schedule\.enable=true"):
            await admin.schedules(topic).get("0-0")
        assert f"{topic}.delay" not in [one.name for one in await admin.list_topics()]
        with pytest.raises(InvalidTopicError, match="internal"):
            admin.schedules("__consumer_offsets")


async def test_what_waited_before_the_topic_allowed_it_is_taken_over(
    bootstrap: str, topic: str, producer: Producer
) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, 1)
        await admin.create_topic(f"{topic}.delay", 1)
        await producer.send(f"{topic}.delay", "v", headers={"deliver-after": "1ms"})
        await producer.send(f"{topic}.delay", "stray")

        await admin.alter_configs(topic, set=SCHEDULED)
        found = await delivered(bootstrap, topic, 1)

        assert [value for value, _ in found] == [b"v"]
        assert await admin.schedules(topic).count() == 0


@pytest.mark.parametrize(
    ("timing", "said"),
    [
        ({"deliver_at": "tomorrow"}, "deliver-at is 'tomorrow'"),
        ({"deliver_at": datetime(2027, 1, 1)}, "no time zone"),
        ({"deliver_at": -1}, "deliver-at is -1"),
        ({"deliver_after": "soon"}, "deliver-after is 'soon'"),
        ({"deliver_cron": "61 * * * *"}, "minute"),
        ({"deliver_cron": "@daily", "deliver_zone": "Mars"}, "Mars"),
        ({"deliver_at": 1, "deliver_after": 1}, "one time"),
        ({"deliver_zone": "UTC"}, "deliver-cron"),
    ],
)
async def test_a_time_that_cannot_be_read_is_refused_before_it_is_sent(
    schedules: Schedules, producer: Producer, timing: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        await producer.send(schedules.topic, "v", **timing)  # type: ignore[arg-type]

    assert await schedules.count() == 0


@pytest.mark.parametrize(
    ("due", "said"),
    [
        (1_800_000_000, "seconds"),
        (1_800_000_000_000_000, "microseconds"),
        (datetime(2999, 1, 1, tzinfo=UTC), "horizon"),
    ],
)
async def test_an_absurd_time_is_refused_by_the_broker(
    schedules: Schedules, producer: Producer, due: int | datetime, said: str
) -> None:
    with pytest.raises(InvalidRecordError, match=said):
        await producer.send(schedules.topic, "v", deliver_at=due)

    assert await schedules.count() == 0


# --- looking ------------------------------------------------------------------------------------


async def test_what_waits_is_listed_by_time_over_all_partitions(
    schedules: Schedules, producer: Producer
) -> None:
    base = now_ms() + FAR_MS
    for number in range(20):
        ahead = number * 7 % 20
        await producer.send(
            schedules.topic, b"x" * ahead, key=f"k{ahead % 4}", deliver_at=base + ahead // 2 * 10
        )

    every = [one async for one in schedules.pending()]
    assert [one.due for one in every] == sorted(base + ahead // 2 * 10 for ahead in range(20))
    assert sorted(one.value_bytes or 0 for one in every) == list(range(20))
    assert {one.partition for one in every} == {0, 1}
    assert await schedules.count() == 20

    some = [one async for one in schedules.pending(start=base + 30, end=base + 60)]
    assert some == [one for one in every if base + 30 <= one.due < base + 60]
    assert [one async for one in schedules.pending(partition=1)] == [
        one for one in every if one.partition == 1
    ]
    assert [one async for one in schedules.pending(key="k2")] == [
        one for one in every if one.key == b"k2"
    ]
    plain = [one async for one in schedules.pending(details=False)]
    assert [(one.id, one.due, one.key) for one in plain] == [
        (one.id, one.due, None) for one in every
    ]


async def test_a_list_goes_on_behind_every_message_of_it(
    schedules: Schedules, producer: Producer
) -> None:
    base = now_ms() + FAR_MS
    for number in range(12):
        await producer.send(
            schedules.topic, "v", partition=number % 2, deliver_at=base + number // 4
        )
    every = [one async for one in schedules.pending()]

    for at, one in enumerate(every):
        place = Place.of(str(one.place))
        assert [found async for found in schedules.pending(after=place, limit=3)] == every[
            at + 1 : at + 4
        ]


# --- changing -----------------------------------------------------------------------------------


async def test_what_is_cancelled_is_never_delivered(
    bootstrap: str, schedules: Schedules, producer: Producer
) -> None:
    due = now_ms() + 1_500
    one, two, three = [
        await producer.send(schedules.topic, f"{name}", partition=0, deliver_at=due)
        for name in range(3)
    ]
    await schedules.cancel(two)

    with pytest.raises(NotPendingError, match="cancelled"):
        await schedules.cancel(two)
    with pytest.raises(NotPendingError, match="cancelled"):
        await schedules.retime(two, now_ms())
    assert await schedules.count() == 2
    assert await delivered(bootstrap, schedules.topic, 2) == [
        (b"0", pytest.approx(due, abs=10_000)),
        (b"2", pytest.approx(due, abs=10_000)),
    ]
    with pytest.raises(NotPendingError, match="delivered"):
        await schedules.cancel(one)
    with pytest.raises(NotPendingError, match="delivered"):
        await schedules.cancel(str(MessageId.of(three)))


async def test_all_that_fit_are_cancelled_page_by_page_and_no_others(
    schedules: Schedules, producer: Producer
) -> None:
    hour, day = now_ms() + 3_600_000, now_ms() + 86_400_000
    kept = await producer.send(schedules.topic, "x", key="a", partition=1, deliver_at=day)
    sent = (
        producer.send(schedules.topic, "x", key="ab"[n % 2], partition=n % 3 % 2, deliver_at=hour)
        for n in range(2_500)
    )
    await asyncio.gather(*sent)

    pages = [len(some) async for some in schedules.cancel_pending(key="a", end=hour + 1)]
    assert pages == [1_000, 250]
    assert [len(some) async for some in schedules.cancel_pending(key="a", end=hour + 1)] == []
    rest = [some async for some in schedules.cancel_pending(end=hour + 1)]
    assert [len(some) for some in rest] == [1_000, 250]
    assert {error for some in rest for error in some.values()} == {None}
    assert [one.id async for one in schedules.pending()] == [MessageId.of(kept)]


async def test_a_message_goes_at_its_new_time(
    bootstrap: str, schedules: Schedules, producer: Producer
) -> None:
    sent = await producer.send(schedules.topic, "v", deliver_after="1h")
    later = now_ms() + 2 * FAR_MS
    await schedules.retime(sent, later)
    assert (await schedules.get(sent)).due == later
    assert [one.due async for one in schedules.pending()] == [later]

    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    await schedules.retime(sent, soon)
    ((value, at_ms),) = await delivered(bootstrap, schedules.topic, 1)

    assert value == b"v"
    assert at_ms >= soon.timestamp() * 1_000
    assert await schedules.count() == 0


async def test_one_wish_that_is_refused_spoils_no_other(
    schedules: Schedules, producer: Producer
) -> None:
    sent = [
        MessageId.of(await producer.send(schedules.topic, "v", partition=n % 2, deliver_after="1h"))
        for n in range(4)
    ]
    nobody = MessageId(0, sent[0].offset + 1_000)  # type: ignore[arg-type]

    retimed = await schedules.retime_all({**dict.fromkeys(sent, now_ms() + FAR_MS), nobody: 1})
    cancelled = await schedules.cancel_all([*sent, nobody])

    for outcomes in (retimed, cancelled):
        assert [name for name, error in outcomes.items() if error is None] == sent
        assert "no such message" in str(outcomes[nobody])
    assert await schedules.count() == 0


async def test_a_new_time_that_cannot_be_meant_is_refused_and_the_old_one_stays(
    schedules: Schedules, producer: Producer
) -> None:
    sent = await producer.send(schedules.topic, "v", deliver_after="1h")
    due = (await schedules.get(sent)).due

    with pytest.raises(InvalidRecordError, match="seconds"):
        await schedules.retime(sent, 1_800_000_000)
    with pytest.raises(InvalidRecordError, match="horizon"):
        await schedules.retime(sent, "2999-01-01T00:00:00Z")

    assert (await schedules.get(sent)).due == due
    for nonsense in ("", "3", "-1", "a-b", "3-", "3-4-5"):
        with pytest.raises(InvalidRequestError, match="no id"):
            await schedules.get(nonsense)
    with pytest.raises(Exception, match="no partition 9"):
        await schedules.cancel("9-0")
