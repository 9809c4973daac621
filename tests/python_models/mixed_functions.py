"""Functions of records, one for each record and one for a batch, that do harm where a record asks for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostile import do_harm  # type: ignore[import-not-found]  # it lies next to this file


def inputs(record: Mapping[str, Any]) -> Mapping[str, Any]:
    do_harm(record.get("inputs"))
    return {"x": record["x"]}


def answer_batch(outputs: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    for record in records:
        do_harm(record.get("answer"))
    return [{"id": record["id"], "y": y} for record, y in zip(records, outputs["y"], strict=True)]
