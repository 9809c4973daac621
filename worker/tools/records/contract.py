"""`inference-worker records contract`: what a deployment's topics of records hold, as an AsyncAPI document.

It is made of the settings and the model: the fields that the mapping reads, and those of the answer. Other tools make
pages, mocks and classes of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from worker.assembled_records import record_mapping
from worker.codecs.records.answer_contract import json_schema
from worker.codecs.records.mapping import RecordMapping
from worker.codecs.records.projection import REQUIRED
from worker.codecs.records.record_contract import record_schema
from worker.core.failures import Code
from worker.core.tensors.signature import Signature
from worker.inference.model_loading import load_as_set
from worker.inference.records.functions import ANSWER
from worker.scored_model import served
from worker.settings import RecordsSettings
from worker.settings.for_commands import ClientKafkaSettings, load_client, load_scoring, unset
from worker.terminal.terminal import print_json
from worker.tools.records.options import ContractOrder

Document = dict[str, Any]

_TEXT: Document = {"type": "string"}
_COUNT: Document = {"type": "string", "pattern": "^[0-9]+$"}
_ECHOED = ("correlation-id", "correlation_id", "kafka_correlationId", "traceparent", "tracestate")
_VALUES: Mapping[str, Document] = {
    "text": {"type": "string", "minLength": 1},
    "bytes": {"type": "string", "format": "binary"},
    "registry": {"description": "A value with its schema in the registry, whose fields the mapping reads by name."},
}
_KEY: Document = {"type": ["string", "null"], "description": "Any bytes."}


class Parts(NamedTuple):
    """The schemas of a record's parts."""

    value: Document
    headers: Document
    key: Document


def contract(order: ContractOrder) -> int:
    """Print the document. Raises `BadConfiguration` for settings without a mapping, or one that the model refuses."""
    kafka, settings = load_client(order.config, os.environ).kafka, load_scoring(order.config, os.environ)
    if settings.records is None or kafka.request_topics is None or kafka.response_topic is None:
        needed = "[records], WORKER_KAFKA__REQUEST_TOPICS and WORKER_KAFKA__RESPONSE_TOPIC"
        raise unset(f"{needed}: must be set; `inference-worker records infer` proposes a mapping", order.config)
    _, signature = served(load_as_set(settings.model, settings.batching), settings)
    mapping = record_mapping(settings, signature)
    assert mapping is not None
    answer = answer_value(settings.records, signature, mapping, nulls=settings.model.non_finite_output == "null")
    record = Parts(record_value(settings.records, mapping), *around(mapping))
    print_json(document(kafka, signature, record, answer))
    return 0


def record_value(records: RecordsSettings, mapping: RecordMapping) -> Document:
    """The schema of a record's value."""
    return _VALUES.get(records.encoding) or record_schema(mapping.fields)


def around(mapping: RecordMapping) -> tuple[Document, Document]:
    """The schema of a record's headers, and of its key, as far as the mapping reads them."""
    headers, key = _request_headers(), _KEY
    needed = []
    for wish in mapping.fields_around:
        (head, *name), is_needed = wish.path.steps, bool(wish.names) or wish.default is REQUIRED
        schema = {"enum": [_written(kind) for kind in wish.names]} if wish.type is Any and wish.names else _TEXT
        if name:
            headers["properties"].setdefault(name[0], schema)
            needed += name if is_needed else []
        elif head == "$key" and is_needed:
            key = schema
    return headers | ({"required": sorted({*needed})} if needed else {}), key


def _written(kind: Any) -> str:
    """The text of a value in a header or a key."""
    return kind if isinstance(kind, str) else msgspec.json.encode(kind).decode()


def answer_value(records: RecordsSettings, signature: Signature, mapping: RecordMapping, *, nulls: bool) -> Document:
    """The schema of an answer's value. The fields that a function makes are not known."""
    if records.encoding == "registry" and records.answer_encoding is None:
        return {"description": "A value with its schema in the registry, with the subject of this topic."}
    is_made = records.functions is not None
    fields = [spec for spec in signature.outputs if not (is_made and spec == ANSWER)]
    schema = json_schema(fields, mapping.keep, has_rows=mapping.has_rows, nulls=nulls)
    return schema if len(fields) == len(signature.outputs) else {**schema, "additionalProperties": True}


def document(kafka: ClientKafkaSettings, signature: Signature, record: Parts, answer: Document) -> Document:
    """The AsyncAPI document of these topics."""
    topics = kafka.request_topics or ()
    messages = {
        "record": _message("A record that is answered", record.headers, record.value, record.key),
        "answer": _message("The answer to a record", _answer_headers("ok"), answer),
        "error": _message("Why a record has no answer", _answer_headers("error"), _error(answer)),
    }
    channels = {f"records-{topic}": _channel(topic, ["record"]) for topic in topics}
    channels["answers"] = _channel(str(kafka.response_topic), ["answer", "error"])
    if kafka.dead_letter_topic is not None:
        messages["rejected"] = _message("A record that got an error, as it came", _dead_letter_headers(), {})
        channels["deadLetters"] = _channel(kafka.dead_letter_topic, ["rejected"])
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": signature.name,
            "version": signature.version,
            "description": "Every record gets exactly one terminal answer, with its key: an answer or an error.",
        },
        "channels": channels,
        "operations": {
            f"answer-{topic}": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/records-{topic}"},
                "reply": {"channel": {"$ref": "#/channels/answers"}},
            }
            for topic in topics
        },
        "components": {"messages": messages},
    }


def _channel(topic: str, messages: Sequence[str]) -> Document:
    return {"address": topic, "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages}}


def _message(title: str, headers: Document, payload: Document, key: Document = _KEY) -> Document:
    bindings = {"kafka": {"key": key, "bindingVersion": "0.5.0"}}
    return {"title": title, "headers": headers, "payload": payload, "bindings": bindings}


def _request_headers() -> Document:
    known = {
        "timeout-ms": {"type": "string", "pattern": "^(?!0+$)[0-9]{1,10}$"},
        "deadline": {"type": "string", "pattern": "^[0-9]{12,14}$"},
        "reply-partition": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    }
    texts = dict.fromkeys(("request-id", "reply-topic", *_ECHOED), _TEXT)
    said = "All that are not required may be left out."
    return {"type": "object", "description": said, "properties": {**known, **texts}}


def _answer_headers(status: str) -> Document:
    properties = {
        **dict.fromkeys(("content-type", "model-version", "request-id", *_ECHOED), _TEXT),
        "status": {"const": status},
        "source": {"type": "string", "pattern": "^[^/]+/[0-9]+/[0-9]+$"},
    }
    required = ["content-type", "status", "model-version", "source"]
    if status == "error":
        properties |= {"error-code": {"enum": [code.value for code in Code]}, "key-omitted": _COUNT}
        required.append("error-code")
    return {"type": "object", "required": required, "properties": properties}


def _dead_letter_headers() -> Document:
    names = ("topic", "partition", "offset", "group", "delivery.count", "message")
    required = [*(f"__dlq.errors.{name}" for name in names), "error-code"]
    return {"type": "object", "required": required, "properties": dict.fromkeys(required, _TEXT)}


def _error(answer: Document) -> Document:
    """The value of an error: JSON, or where answers have a schema, a value of it."""
    if "type" not in answer:
        return {"description": "A value of the answers' schema, which has the field `error` alone."}
    return {"type": "object", "required": ["error"], "properties": {"error": _TEXT}, "additionalProperties": False}
