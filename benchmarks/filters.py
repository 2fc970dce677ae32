"""How many records a second a view looks through: ``python -m benchmarks.filters``.

Records of about 1 KB with a key, three headers and a JSON document, in batches as producers send
them.  Each line is one expression; the figures are records per second of CPU time on one core, from
the bytes of a log to the bytes of a view.  ``FLOORS`` are what must be reached.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import process_time

import msgspec

from waystation.filters import picking
from waystation.filters.narrowing import Narrowing
from waystation.filters.selecting import Filter
from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import Offset
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.header import stamp

RECORDS = 16_000
KEY_FLOOR, JSON_FLOOR = 300_000, 100_000
COUNTRIES = ("AT", "BE", "CH", "CZ", "DK", "ES", "FR", "GB", "IT", "NL")
WORDS = ("amber", "basalt", "cedar", "drizzle", "ember", "fjord", "garnet", "harbour")

EXPRESSIONS = (
    ("by key and headers", KEY_FLOOR, "key LIKE 'customer-7%' AND headers.kind = 'refund'"),
    ("by one key", KEY_FLOOR, "key = 'customer-77'"),
    ("by a header", KEY_FLOOR, "headers.kind = 'refund'"),
    ("by a header's number", KEY_FLOOR, "CAST(headers.attempt AS NUMBER) >= 99"),
    ("by offset", KEY_FLOOR, "offset BETWEEN 100 AND 259"),
    ("by a rare text in JSON", JSON_FLOOR, "value.customer.country = 'DE'"),
    ("by a number in JSON", JSON_FLOOR, "value.amount >= 9900"),
    (
        "by three fields of JSON",
        JSON_FLOOR,
        "value.amount > 9000 AND value.paid AND value.customer.vip",
    ),
    ("by a text in every JSON", JSON_FLOOR, "value.currency = 'EUR' AND value.amount >= 9900"),
    ("by a member of a list", JSON_FLOOR, "value.items[0].sku LIKE 'sku-00%'"),
    ("by the value as text", JSON_FLOOR, 'value LIKE \'%"country":"DE"%\''),
)


def document(number: int) -> bytes:
    """About 1 KB, as orders are; one of a hundred comes from Germany."""
    country = "DE" if number % 100 == 17 else COUNTRIES[number % len(COUNTRIES)]
    items = [
        {"sku": f"sku-{(number * 7 + one) % 10_000:04}", "name": WORDS[one % 8], "count": one + 1}
        for one in range(11)
    ]
    order = {
        "id": number,
        "customer": {"id": number % 1_000, "country": country, "vip": number % 10 == 3},
        "amount": number * 7_919 % 10_000,
        "currency": "EUR",
        "paid": number % 3 == 0,
        "items": items,
        "note": " ".join(WORDS[(number + one) % 8] for one in range(40)),
    }
    return msgspec.json.encode(order)


def log(batch_bytes: int, codec: Codec) -> bytes:
    """So many records in batches of about that size."""
    out, offset = bytearray(), 0
    while offset < RECORDS:
        builder = BatchBuilder(codec, limit_bytes=batch_bytes)
        while offset + builder.records_count < RECORDS:
            number = offset + builder.records_count
            headers = (
                ("source", b"shop"),
                ("kind", b"refund" if number % 100 == 5 else b"order"),
                ("attempt", b"%d" % (number % 100)),
            )
            key = b"customer-%d" % (number % 1_000)
            if not builder.append(key, document(number), headers, timestamp=1_000 + number):
                break
        batch = bytearray(builder.build())
        stamp(batch, 0, Offset(offset), LeaderEpoch(1))
        out += batch
        offset += builder.records_count
    return bytes(out)


def windows(data: bytes, size_bytes: int = 1 << 20) -> Callable[[Narrowing], tuple[int, int, int]]:
    """A function that narrows ``data`` as a broker would: a window at a time."""

    def narrowed(narrowing: Narrowing) -> tuple[int, int, int]:
        at = records = matches = out_bytes = 0
        view = memoryview(data)
        while at < len(data):
            done = narrowing.take(view[at : at + size_bytes])
            at += done.taken_bytes
            records += done.records
            matches += done.matches
            out_bytes += len(done.data)
        return records, matches, out_bytes

    return narrowed


def per_second(work: Callable[[], object]) -> float:
    """Rounds a second of CPU time, in the best of five."""
    best = 0.0
    for _ in range(5):
        began = process_time()
        work()
        best = max(best, 1 / (process_time() - began))
    return best


def measure(title: str, batch_bytes: int, codec: Codec) -> bool:
    """One line per expression; whether all of them reach their floors."""
    data = log(batch_bytes, codec)
    narrowed = windows(data)
    print(f"--- {RECORDS} records, {len(data) / RECORDS:.0f} B each in the log, {title}")
    reached = True
    for name, floor, expression in EXPRESSIONS:
        narrowing = Narrowing(Filter(expression), partition=0)
        records, matches, out_bytes = narrowed(narrowing)
        assert records == RECORDS, f"{records} records were looked at"
        rate = per_second(lambda n=narrowing: narrowed(n)) * RECORDS  # type: ignore[misc]
        reached = reached and rate >= floor
        print(
            f"  {name:26}{rate:>12,.0f}/s{rate / floor:>7.1f}x of {floor:,}"
            f"{matches / RECORDS:>8.2%} match{1 - out_bytes / len(data):>8.1%} fewer bytes"
        )
    return reached


def main() -> None:
    kind = "compiled" if picking.COMPILED else "NOT compiled"
    print(f"Python {sys.version.split()[0]}; picking is {kind}")
    reached = [
        measure("batches of 16 KB", 16 << 10, Codec.NONE),
        measure("batches of 1 MB", 1 << 20, Codec.NONE),
        measure("batches of 2 KB", 2 << 10, Codec.NONE),
    ]
    print("for comparison, where decompression is most of it:")
    measure("batches of 64 KB, lz4", 64 << 10, Codec.LZ4)
    sys.exit(0 if all(reached) else "a floor is not reached")


if __name__ == "__main__":
    main()
