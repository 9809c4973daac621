"""Rows as Kafka Connect writes them into JSON, by its own `JsonConverter` (connect-json 4.1.0, with the schema).

`tests/golden/connect.jsonl` has them. Debezium's rows have the same forms, one envelope further in.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.codecs.records.builders import mapping, numbers, read, spec

ROWS = (Path(__file__).parents[3] / "golden" / "connect.jsonl").read_bytes().splitlines()


def test_rows_of_connect_are_read() -> None:
    """Decimals are the base64 of their digits, instants are numbers, and the record is in `payload`."""
    of = mapping(
        spec("FP64", 5),
        spec("BYTES", name="country"),
        envelope="payload",
        inputs={
            "x": [
                {"field": "amount", "as": "decimal", "scale": 2},
                {"field": "created", "as": "minute", "epoch": "ms"},
                {"field": "day", "as": "day", "epoch": "d"},
                {"field": "clock", "as": "hour", "epoch": "ms"},
                "customer.age",
            ],
            "country": {"field": "customer.country", "default": "none"},
        },
    )

    mapped = read(of, *ROWS)

    assert numbers(mapped.tensors[0], "<f8") == [[0, 0, 31, 12, 0], [0.04, 28, 31, 12, 4], [0.06, 42, 31, 12, 6]]
    assert [list(row) for row in mapped.tensors[1]] == [["NL"], ["none"], ["NL"]]
