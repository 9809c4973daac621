"""What is proposed for a sample is a mapping that a worker accepts, and it reads the sample's records."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meeting import meeting, met
from tests.models import model, save
from worker.codecs.records.mapping import RecordMapping
from worker.core.records import Partition, Record, Rejection
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.inference.model_loading import load_as_set
from worker.inference.records.conclusions import fields_of
from worker.scorer import Scorer
from worker.settings import RecordsSettings
from worker.settings.for_commands import load_scoring
from worker.tools.records.proposal import propose
from worker.tools.records.proposing import proposed
from worker.tools.records.sample import sample_of
from worker.tools.records.section_text import section_text

NAMES = ("amount", "age", "country", "created", "x.y", "id")
MISSING = object()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "whole numbers": st.integers(-1000, 1000),
    "numbers": st.floats(-1e6, 1e6),
    "booleans": st.booleans(),
    "texts": st.text(max_size=5),
    "few texts": st.sampled_from(["web", "app"]),
    "decimals": st.decimals(-1000, 1000, places=2).map(str),
    "instants": st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    "arrays": st.lists(st.integers(0, 9), min_size=2, max_size=2),
}


@st.composite
def samples(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Records whose fields have one kind each, perhaps inside an object, perhaps missing or null now and then."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    kinds = {name: draw(st.sampled_from([*VALUES])) for name in names}
    gaps = draw(st.lists(st.sampled_from(names), unique=True))
    shape = draw(st.sampled_from(["flat", "inside", "items", "kinds"]))

    def values() -> dict[str, Any]:
        drawn = {
            name: draw(st.one_of(VALUES[kind], st.none(), st.just(MISSING)) if name in gaps else VALUES[kind])
            for name, kind in kinds.items()
        }
        return {name: value for name, value in drawn.items() if value is not MISSING}

    def record() -> dict[str, Any]:
        match shape:
            case "inside":
                return {"of": values()}
            case "items":
                return {"items": [values() for _ in range(draw(st.integers(1, 3)))], "at": 1}
            case "kinds":
                return draw(st.one_of(st.just({"kind": "other", "more": 1}), st.just({"kind": "own", **values()})))
        return values()

    return [record() for _ in range(draw(st.integers(1, 8)))]


SPECS = st.builds(
    TensorSpec,
    st.sampled_from([*NAMES, "features"]),
    st.sampled_from(["FP32", "FP64", "INT64", "BOOL", "BYTES"]),
    st.sampled_from([(), (1,), (2,), (3,), (None,)]),
)


@meeting("a default", "a conversion", "a vector", "rows", "kinds", "every record is read")
@settings(max_examples=500)  # one in four makes a complete proposal
@given(samples(), st.lists(SPECS, min_size=1, max_size=4, unique_by=lambda spec: spec.name), st.booleans())
def test_a_complete_proposal_is_a_mapping(
    values: list[dict[str, Any]],
    inputs: list[TensorSpec],
    takes_nan: bool,  # noqa: FBT001  # hypothesis gives it
) -> None:
    """A record that it does not read lacks a field, or has null, where nothing stands for that."""
    records = [Record(Partition("t", 0), at, None, json.dumps(one).encode(), (), None) for at, one in enumerate(values)]
    signature = Signature("m", "1", tuple(inputs), (TensorSpec("y", "FP32", ()),))

    proposal = propose(signature, sample_of(records), takes_nan=takes_nan)

    section = RecordsSettings.model_validate(proposal.section)
    complete = not proposal.open
    if not complete:
        return
    entries = json.dumps(proposal.section["inputs"])
    met("a default", is_so='"default"' in entries)
    met("a conversion", is_so='"as"' in entries)
    met("a vector", is_so=any(isinstance(entry, list) for entry in proposal.section["inputs"].values()))
    mapping = RecordMapping(section, signature, takes_nan=takes_nan)
    mapped = mapping.read([record.value or b"" for record in records], records)
    met("rows", is_so="rows" in proposal.section)
    met("kinds", is_so="only" in proposal.section)
    met("every record is read", is_so=not mapped.faults)
    assert [why for why in mapped.faults.values() if "missing" not in why and "null" not in why] == []


OUTPUTS = st.builds(
    TensorSpec,
    st.sampled_from(["label", "score", "logits", "logits_2", "probabilities", "embedding", "last_hidden_state", "id"]),
    st.sampled_from(["FP32", "INT64", "BYTES"]),
    st.sampled_from([(), (1,), (2,), (3,), (None,), (None, 4), (2, 3)]),
)
MASK = TensorSpec("attention_mask", "INT64", (None,))


@meeting("a class", "a vector of texts", "two outputs for one name")
@settings(max_examples=300)
@given(st.lists(OUTPUTS, min_size=1, max_size=4, unique_by=lambda spec: spec.name), st.booleans())
def test_a_proposed_answer_is_one(outputs: list[TensorSpec], has_mask: bool) -> None:  # noqa: FBT001  # hypothesis gives it
    """Its text is read as what was proposed, and a worker makes each of its fields."""
    inputs = (TensorSpec("x", "FP32", ()), *([MASK] if has_mask else []))
    values = b'{"x": 1, "attention_mask": [1], "id": "a-1", "of": {"score": {"id": "b-2"}}}'
    signature = Signature("m", "1", inputs, tuple(outputs))

    proposal = propose(signature, sample_of([Record(Partition("t", 0), 0, None, values, (), None)]))

    section = tomllib.loads(section_text(proposal, 1))["records"]
    assert section == proposal.section
    entries = {name: entry for name, entry in section["answer"].items() if name != "keep"}
    fields = fields_of(entries, outputs, [spec.name for spec in inputs])
    served = replace(signature, outputs=tuple([field.spec for field in fields]))
    RecordMapping(RecordsSettings.model_validate(section), served)
    met("a class", is_so={"argmax": "logits"} in entries.values())
    met("a vector of texts", is_so=any("mean" in entry for entry in entries.values() if isinstance(entry, dict)))
    met("two outputs for one name", is_so="label" in entries and any("logits" in entry for entry in entries))


TYPES = {"FP32": "float", "FP64": "double", "INT64": "int64", "BOOL": "bool", "BYTES": "string"}
NAMED = SPECS.filter(lambda spec: "." not in spec.name)


def copying(specs: list[TensorSpec]) -> bytes:
    """A model that gives back each of these inputs, under another name."""
    kinds = [
        f"{TYPES[spec.datatype]}[{', '.join(['batch', *[str(dim or 'any') for dim in spec.dims]])}] " for spec in specs
    ]
    takes = ", ".join([f"{kind}{spec.name}" for kind, spec in zip(kinds, specs, strict=True)])
    gives = ", ".join([f"{kind}out{at}" for at, kind in enumerate(kinds)])
    return model(f"{takes} => {gives}", "\n".join([f"out{at} = Identity({one.name})" for at, one in enumerate(specs)]))


@meeting("answers", least=10)
@settings(max_examples=100, deadline=None)  # a model is loaded
@given(samples(), st.lists(NAMED, min_size=1, max_size=2, unique_by=lambda spec: spec.name))
def test_what_is_written_starts_and_answers_the_sample(values: list[dict[str, Any]], inputs: list[TensorSpec]) -> None:
    """A record without an answer lacks a field for which nothing stands, and a comment says that."""
    records = [Record(Partition("t", 0), at, None, json.dumps(one).encode(), (), None) for at, one in enumerate(values)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = save(copying(inputs), folder)
        environ = {"WORKER_MODEL__PATH": str(path), "WORKER_MODEL__DEVICE": "cpu"}
        proposal = proposed(load_scoring(None, environ), records, folder)
        if proposal.open:
            return
        (folder / "worker.toml").write_text(section_text(proposal, len(records)), encoding="utf-8")
        written = load_scoring(folder / "worker.toml", environ)
        answers = Scorer(load_as_set(written.model, written.batching), written).records(records)

    refused = [answer for answer in answers if isinstance(answer, Rejection) and not answer.is_silent]
    if refused:
        assert any("A record without it is refused" in entry.said for entry in proposal.entries), refused[0].message
    met("answers", is_so=not refused)
