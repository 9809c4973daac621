"""Payments: records as a topic of a shop has them, in JSON and in Avro, of which a model of fraud takes some fields.

A payment is a JSON object of about 500 bytes, most of which the model does not need. `balance`, `distance_km` and
`discount` may be null or missing, and so may the text `device`. Nothing here imports `worker`: a mistake there must not
hide here.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import fastavro
import numpy as np
import orjson
from numpy.typing import NDArray

Payment = Mapping[str, Any]
Columns = dict[str, NDArray[Any]]

# The model's inputs, and the path of each one's field. Floats may be missing, and the text of `device`.
FLOATS = {each: each for each in ("amount", "balance", "distance_km", "discount")}
COUNTS = {"age_days": "customer.age_days", "previous": "customer.previous", "hour": "hour", "items": "items"}
TEXTS = {"country": "customer.country", "category": "merchant.category", "channel": "channel", "device": "device"}
NO_DEVICE = "none"  # the text that stands for a missing `device`
CLASSES = ("ok", "fraud")

COUNTRIES = ("DE", "NL", "FR", "ES", "IT", "GB", "US", "BR", "NG", "IN", "SE", "PL")
CATEGORIES = ("groceries", "books", "travel", "electronics", "gift cards", "gambling", "fuel", "clothing", "games")
CHANNELS, DEVICES = ("web", "app", "terminal", "telephone"), ("ios", "android", "windows", "linux")
_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0"

SCHEMA = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop.payments",
    "fields": [
        {"name": "payment_id", "type": "string"},
        {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": "string"},
        {
            "name": "customer",
            "type": {
                "type": "record",
                "name": "Customer",
                "fields": [
                    {"name": "id", "type": "string"},
                    {"name": "country", "type": "string"},
                    {"name": "age_days", "type": "long"},
                    {"name": "previous", "type": "int"},
                    {"name": "is_verified", "type": "boolean"},
                ],
            },
        },
        {
            "name": "merchant",
            "type": {
                "type": "record",
                "name": "Merchant",
                "fields": [{"name": name, "type": "string"} for name in ("id", "name", "category")],
            },
        },
        {"name": "channel", "type": "string"},
        {"name": "hour", "type": "int"},
        {"name": "items", "type": "int"},
        *(
            {"name": name, "type": ["null", "double"], "default": None}
            for name in ("balance", "distance_km", "discount")
        ),
        {"name": "device", "type": ["null", "string"], "default": None},
        {"name": "user_agent", "type": "string"},
        {"name": "note", "type": "string"},
    ],
}


def payments(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Makes payments. One in ten optional fields is null, and one in ten is missing."""
    rng = np.random.default_rng(seed)
    drawn = zip(
        rng.lognormal(3.5, 1.0, count).round(2).tolist(),
        rng.gamma(2.0, 300.0, count).astype(int).tolist(),
        rng.integers(0, (24, 9, 60), (count, 3)).tolist(),
        rng.integers(0, tuple(map(len, (COUNTRIES, CATEGORIES, CHANNELS, DEVICES))), (count, 4)).tolist(),
        np.stack([rng.normal(800, 900, count), rng.gamma(1, 40, count), rng.random(count)]).T.round(2).tolist(),
        rng.integers(0, 10, (count, 4)).tolist(),
        strict=True,
    )
    return [_payment(at, *each) for at, each in enumerate(drawn)]


def _payment(
    at: int,
    amount: float,
    age_days: int,
    whole: Sequence[int],
    chosen: Sequence[int],
    optional: Sequence[float],
    luck: Sequence[int],
) -> dict[str, Any]:
    (hour, items, previous), (country, category, channel, device) = whole, chosen
    found = {
        "payment_id": f"4f9c{at:08x}-77aa-4e02-9d3b-{at * 7919 % 2**48:012x}",
        "created_at": f"2026-11-{1 + at % 28:02}T{hour:02}:{at % 60:02}:{at * 7 % 60:02}.{at % 1000:03}Z",
        "amount": amount,
        "currency": "EUR",
        "customer": {
            "id": f"c-{at % 99991:06}",
            "country": COUNTRIES[country],
            "age_days": age_days,
            "previous": previous,
            "is_verified": at % 3 > 0,
        },
        "merchant": {"id": f"m-{at % 997:04}", "name": f"Shop number {at % 997}", "category": CATEGORIES[category]},
        "channel": CHANNELS[channel],
        "hour": hour,
        "items": items + 1,
        "user_agent": _AGENT,
        "note": f"order {at}, delivered by post",
    }
    values = [*optional, DEVICES[device]]
    for name, value, draw in zip(("balance", "distance_km", "discount", "device"), values, luck, strict=True):
        if draw:  # 0: the field is missing
            found[name] = None if draw == 1 else value
    return found


def as_json(payment: Payment) -> bytes:
    """Writes a payment as JSON."""
    return orjson.dumps(payment)


def as_avro(payment: Payment, schema_id: int = 1) -> bytes:
    """Writes a payment as Avro in Confluent's framing: a byte 0, the schema's number, the body."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, parsed_schema(), {**payment, "created_at": _moment(payment["created_at"])})
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


@cache
def parsed_schema() -> Any:
    """Returns the schema of payments as fastavro takes it."""
    return fastavro.parse_schema(SCHEMA)


def _moment(text: str) -> int:
    return int(np.datetime64(text[:-1], "ms").astype(int))


def columns(records: Sequence[Payment]) -> Columns:
    """Returns the model's inputs for some payments, each of shape (payments, 1). Floats that are missing are NaN."""
    floats = {name: np.array([_at(each, path) for each in records], np.float32) for name, path in FLOATS.items()}
    counts = {name: np.array([_at(each, path) for each in records], np.int64) for name, path in COUNTS.items()}
    texts = {name: np.array([_at(each, path) or NO_DEVICE for each in records], object) for name, path in TEXTS.items()}
    return {name: column[:, None] for name, column in (floats | counts | texts).items()}


def _at(record: Any, path: str) -> Any:
    for name in path.split("."):
        record = record.get(name)
    return record
