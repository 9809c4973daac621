"""Functions of records that do the worst to their process where a record asks for it, before the model or after."""

from collections.abc import Mapping
from typing import Any

from hostile import do_harm  # type: ignore[import-not-found]  # it lies next to this file


def inputs(record: Mapping[str, Any]) -> Mapping[str, Any]:
    do_harm(record.get("inputs"))
    return {"x": [record["n"]] * 4}


def answer(outputs: Mapping[str, Any], record: Mapping[str, Any]) -> Mapping[str, Any]:
    do_harm(record.get("answer"))
    return {"n": record["n"], "twice": outputs["y"][0]}
