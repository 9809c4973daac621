"""The part of `check` about records: what the mapping says, and how the newest records of the topics fare with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from worker.assembled_records import RecordParts, record_parts
from worker.commands.report import Headers, Report, Row
from worker.core.failures import BadConfiguration, Stop
from worker.core.records import Answer, Record, Rejection
from worker.core.tensors.signature import Signature
from worker.inference.model import Model
from worker.kafka.reader import newest
from worker.scored_model import hosted
from worker.scorer import Scorer
from worker.settings import Settings
from worker.terminal.terminal import count

TRIED = 10  # the newest records of each topic
_MOST_INPUTS, _MOST_FIELDS = 20, 12  # that the report names
Example = Mapping[str, tuple[Headers, bytes]]


def look_at_mapping(model: Model | None, settings: Settings, report: Report, closing: ExitStack) -> Scorer | None:
    """Judge the mapping of records. Returns what answers records by it; `closing` closes it. None: a host loads it.

    A registry is asked whether it would take the schema of the answers, and does not get it.
    """

    def parts_of(signature: Signature) -> RecordParts:
        parts = record_parts(settings, signature, closing, is_trial=True)
        if parts.warning is not None:
            report.warn(parts.warning)
        return parts

    try:
        scorer = Scorer(hosted(settings, closing) if model is None else model, settings, parts_of)
    except Stop as stop:
        report.add(stop)
        return None
    report.records = dict(mapped(scorer))
    return scorer


def mapped(scorer: Scorer) -> Iterator[Row]:
    """Yields what feeds each input, and then what the answer has."""
    mapping, signature = scorer.mapping, scorer.signature
    assert mapping is not None
    for spec in signature.inputs[:_MOST_INPUTS]:
        paths = mapping.fed_by[spec.name]
        source = f" from {_listed([str(path) or 'the whole record' for path in paths])}" if paths else ", a constant"
        yield spec.name, f"{str(spec).partition(' ')[2]}{source}"
    if more := len(signature.inputs[_MOST_INPUTS:]):
        yield "…", f"and {count(more, 'input')} more"
    keeps = "the whole record" if mapping.keep == "all" else _listed(mapping.keep)
    yield "answer", f"{_listed(list(map(str, signature.outputs)))}{f', with {keeps}' if keeps else ''}"


def try_newest(scorer: Scorer, settings: Settings, report: Report) -> Example:
    """Try the newest records of the topics. Returns one with its answer, if there is one; the report has the rest."""
    example: Example = {}
    for topic in settings.kafka.request_topics:
        try:
            records = newest(settings.kafka, topic, TRIED)
            answers = scorer.records(records)
        except BadConfiguration as unreadable:
            report.warn(f"the newest records of {topic} were not tried: {unreadable}")
            continue
        except Stop as stop:
            report.add(stop)
            break
        report.records[topic] = _judged(topic, records, answers, report)
        if missed := _kept_by_none(scorer, answers):
            report.warn(f"{topic}: [records.answer] keeps {_listed(missed)}, and none of the newest records has it")
        example = example or _example(records, answers)
    return example


def _judged(topic: str, records: Sequence[Record], answers: Sequence[Answer], report: Report) -> str:
    """How these records fared. No answer at all is a problem, and some without one are a warning."""
    if not records:
        return "there is no record to try"
    rejections = [answer for answer in answers if isinstance(answer, Rejection)]
    refused = [rejection.message for rejection in rejections if not rejection.is_silent]
    answered, passed_over = len(answers) - len(rejections), len(rejections) - len(refused)
    if refused:
        why = "; ".join(f"{message} ({many})" for message, many in Counter(refused).most_common(5))
        told = f"{topic}: {len(refused)} of the {len(records)} newest records would get an error: {why}"
        if answered:
            report.warn(told)
        else:
            report.refuse([told], BadConfiguration.exit_code)
    elif not answered:
        report.warn(f"{topic}: the {len(records)} newest records are all of another kind than [records] only names")
    passed = f", {passed_over} of another kind passed over" if passed_over else ""
    return f"{count(len(records), 'newest record')} tried: {answered} answered, {len(refused)} refused{passed}"


def _kept_by_none(scorer: Scorer, answers: Sequence[Answer]) -> Sequence[str]:
    """The kept fields that are null in all answers. Where records have a schema, a start finds them."""
    assert scorer.mapping is not None
    values = [answer[2] for answer in answers if not isinstance(answer, Rejection)]
    if scorer.mapping.keep == "all" or not values or not all(value and value.startswith(b"{") for value in values):
        return []
    answered = [json.loads(value or b"") for value in values]
    return [name for name in scorer.mapping.keep if all(fields[name] is None for fields in answered)]


def _example(records: Sequence[Record], answers: Sequence[Answer]) -> Example:
    for record, answer in zip(records, answers, strict=True):
        if not isinstance(answer, Rejection):
            _, _, value, headers, *_ = answer
            return {"record": ((), record.value or b""), "answer": (headers or (), value or b"")}
    return {}


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_FIELDS])
    return f"{shown} and {len(names) - _MOST_FIELDS} more" if len(names) > _MOST_FIELDS else shown
