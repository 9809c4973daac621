"""The records that get no answer: `publish --wait` judges them as a worker of the same settings does."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from worker.core.failures import BadConfiguration
from worker.settings.for_commands import load_client
from worker.tools.publish.passed_over import PassedOver
from worker.tools.publish.requests import Publishable

Section = Mapping[str, object]


def judge(records: Section, **kafka: str) -> PassedOver:
    """The judge of settings with this section."""
    environ = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092"}
    environ |= {f"WORKER_KAFKA__{name.upper()}": value for name, value in kafka.items()}
    tables = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in records.items()}
    environ |= {f"WORKER_RECORDS__{name.upper()}": value for name, value in tables.items()}
    if records.get("encoding") == "registry":
        environ["WORKER_REGISTRY__URL"] = "http://localhost:8081"
    return PassedOver(load_client(None, environ), "payments")


AROUND: Section = {"encoding": "text", "only": {"$key": ["payment"], "$headers.kind": ["payment"]}}
OWN = (("kind", b"payment"),)


@pytest.mark.parametrize(
    ("records", "request_", "fate"),
    [
        ({"only": {"kind": ["payment"]}}, Publishable(b'{"kind": "payment"}'), "answered"),
        ({"only": {"kind": ["payment"]}}, Publishable(b'{"kind": "refund"}'), "passed over"),
        ({"only": {"kind": ["payment"]}}, Publishable(b'{"amount": 1}'), "passed over"),
        ({"only": {"kind": ["payment"]}}, Publishable(b"[1]"), "answered"),
        ({"only": {"kind": [1]}, "envelope": "after"}, Publishable(b'{"after": {"kind": true}}'), "passed over"),
        ({"only": {"kind": [1]}, "envelope": "after"}, Publishable(b'{"after": {"kind": 1}}'), "answered"),
        ({"envelope": "after"}, Publishable(b'{"after": null}'), "answered"),
        (AROUND, Publishable(b"text", b"payment", OWN), "answered"),
        (AROUND, Publishable(b"text", b"refund", OWN), "passed over"),
        (AROUND, Publishable(b"text", b"payment"), "passed over"),
        ({"inputs": {"x": "amount"}}, Publishable(b"{}"), "answered"),
        ({"inputs": {"x": "amount"}}, Publishable(None), "answered"),
    ],
)
def test_a_record_of_another_kind_is_passed_over(records: Section, request_: Publishable, fate: str) -> None:
    """A record of which nothing can be read, or nothing else is right, gets an error, which is an answer."""
    judged = judge(records)

    assert judged.is_sure
    assert judged.has(request_) is (fate == "passed over")


def test_null_is_passed_over_where_the_worker_skips_it() -> None:
    """An envelope with null is null, too."""
    plain, wrapped = judge({}, null_value="skip"), judge({"envelope": "after"}, null_value="skip")

    assert plain.has(Publishable(None))
    assert not plain.has(Publishable(b""))
    assert wrapped.has(Publishable(b'{"after": null}'))


def test_kinds_in_records_with_a_schema_are_not_judged() -> None:
    """Only a worker reads these; what is around the values is judged all the same."""
    inside = judge({"encoding": "registry", "only": {"kind": ["payment"]}})
    around = judge({"encoding": "registry", "envelope": "after", "only": {"$key": ["payment"]}})

    assert not inside.is_sure
    assert not inside.has(Publishable(b"\0framed"))
    assert around.is_sure
    assert around.has(Publishable(b"\0framed", b"refund"))


def test_kinds_that_no_record_can_have_are_refused() -> None:
    """As at the start of a worker."""
    with pytest.raises(BadConfiguration, match="a text and bytes have no fields, and kind is one"):
        judge({"encoding": "text", "only": {"kind": ["payment"]}})
