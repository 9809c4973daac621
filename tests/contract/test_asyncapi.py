"""`schemas/asyncapi.yaml` is a valid AsyncAPI document and agrees with the code and the golden exchanges."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.chunks import record
from tests.contract.exchanges import EXCHANGES, SCHEMAS, Side, answer, arrays, codec, side, signature, text_of
from tests.contract.exchanges import record as golden
from worker.codecs import dead_letters
from worker.codecs import request_headers as envelope
from worker.codecs.codec import Codec
from worker.codecs.wire_contract import Wire
from worker.core.records import UNREADABLE_HEADER

DOCUMENT: dict[str, Any] = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text(encoding="utf-8"))
MESSAGES: dict[str, Any] = DOCUMENT["components"]["messages"]
HEADERS: dict[str, Any] = DOCUMENT["components"]["schemas"]

ROOT = SCHEMAS.parent
SPECS = "6.11.1"  # of the npm package @asyncapi/specs, where the initiative publishes its JSON Schemas
CACHE = ROOT / ".cache" / "asyncapi" / SPECS

SIDES = {"request": "Request", "answer": "Result", "error": "Error"}
EXAMPLES = [(name, example["name"], example) for name, message in MESSAGES.items() for example in message["examples"]]


@pytest.fixture(scope="module")
def asyncapi_schema() -> Any:
    """AsyncAPI's own JSON Schema; npm fetches it once. Without it the test is skipped."""
    if shutil.which("npm") is None and not CACHE.is_dir():
        pytest.skip("no npm on the PATH, which fetches AsyncAPI's JSON Schema")
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with (CACHE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs may want it at once
        if not CACHE.is_dir():
            _fetch(CACHE.with_suffix(".part"))
    return json.loads((CACHE / f"{DOCUMENT['asyncapi']}.json").read_text(encoding="utf-8"))


def _fetch(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = ["npm", "pack", "--silent", f"@asyncapi/specs@{SPECS}", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    if done.returncode:
        pytest.skip(f"npm could not fetch AsyncAPI's JSON Schema: {done.stderr[-300:]}")
    (package,) = folder.glob("*.tgz")
    with tarfile.open(package) as tar:
        for member in tar.getmembers():
            if member.name.startswith("package/schemas/3."):
                member.name = Path(member.name).name
                tar.extract(member, folder, filter="data")
    folder.rename(CACHE)


# The document by itself


def test_it_is_valid_by_asyncapi_s_own_schema(asyncapi_schema: Any) -> None:
    """AsyncAPI knows every object, and the Kafka bindings have the fields of their version."""
    validator = Draft7Validator(asyncapi_schema)

    assert not [f"{error.json_path}: {error.message}" for error in validator.iter_errors(DOCUMENT)]
    assert not validator.is_valid({**DOCUMENT, "channel": {}})


def test_every_reference_leads_somewhere() -> None:
    """It leads to a place in the document, or to a JSON Schema in its folder."""
    for reference in references(DOCUMENT):
        file, _, pointer = reference.partition("#")
        found: Any = json.loads((SCHEMAS / file).read_text(encoding="utf-8")) if file else DOCUMENT
        for name in pointer.split("/")[1:]:
            found = found[name]
        assert found


def references(node: Any) -> Iterator[str]:
    """The values of all `$ref` keys."""
    if isinstance(node, Mapping):
        yield from ([node["$ref"]] if "$ref" in node else [])
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from references(child)


def test_every_message_stands_on_one_topic() -> None:
    """Every topic is in one operation, too, seen from the worker."""
    held = [message["$ref"] for channel in DOCUMENT["channels"].values() for message in channel["messages"].values()]
    answer, keep = DOCUMENT["operations"]["answerRequest"], DOCUMENT["operations"]["keepRejected"]

    assert sorted(held) == sorted(f"#/components/messages/{name}" for name in MESSAGES)
    assert (answer["action"], keep["action"]) == ("receive", "send")
    channels = [answer["channel"], answer["reply"]["channel"], keep["channel"]]
    assert [channel["$ref"] for channel in channels] == [f"#/channels/{name}" for name in DOCUMENT["channels"]]


# The document and the golden exchanges


def headers_fit(message: str, headers: Mapping[str, str]) -> list[str]:
    """The faults in a record's headers; names are compared without case."""
    spelled = {name.lower(): name for schema in HEADERS.values() for name in schema.get("properties", ())}
    known = {spelled.get(name.lower(), name): value for name, value in headers.items()}
    rules = {"$ref": f"#/components/messages/{message}/headers", "components": DOCUMENT["components"]}
    return [error.message for error in Draft7Validator(rules).iter_errors(known)]


def message_of(which: str, golden: Side) -> str:
    """The name of the message for one side of an exchange."""
    headers = {name.lower(): value.partition(";")[0] for name, value in golden.headers.items()}
    form = {"application/json": "json", "application/x-protobuf": "protobuf", "application/octet-stream": "rows"}
    encoding = form[headers.get("content-type", "application/json")]
    return ("binary" if "inference-header-content-length" in headers else encoding) + SIDES[which]


GOLDEN = [(exchange, which) for exchange, held in EXCHANGES.items() for which in SIDES if which in held]


@pytest.mark.parametrize(("exchange", "which"), GOLDEN)
def test_a_golden_record_is_one_of_its_messages(exchange: str, which: str) -> None:
    """Its headers fit that message, and no other message of its topic."""
    golden = side(exchange, which)
    name = message_of(which, golden)
    kinds = ("Request",) if which == "request" else ("Result", "Error")

    fitting = [other for other in MESSAGES if other.endswith(kinds) and not headers_fit(other, golden.headers)]

    assert fitting == [name], headers_fit(name, golden.headers)


@pytest.mark.parametrize(("message", "exchange", "example"), EXAMPLES)
def test_an_example_is_a_golden_exchange(message: str, exchange: str, example: dict[str, Any]) -> None:
    """Every header and, in JSON, every element is equal."""
    if message == "deadLetter":
        assert example["headers"] == EXCHANGES[exchange]["dead_letter"]["headers"]
        assert not headers_fit(message, example["headers"])
        return
    (which,) = (which for which, kind in SIDES.items() if message.endswith(kind))

    golden = side(exchange, which)

    assert message == message_of(which, golden)
    assert example.get("headers", {}) == golden.headers
    if message.startswith("json"):
        assert example["payload"] == json.loads(golden.value)


# The document and the code


def documented(schema: str) -> set[str]:
    """The header names of a schema, in lower case."""
    return {name.lower() for name in HEADERS[schema]["properties"]}


def test_the_headers_read_are_those_of_the_document() -> None:
    """Every name with a meaning in a request is there, and no other."""
    assert documented("requestHeaders") == {
        *envelope._FORM,
        *envelope.ECHOED,
        *(envelope.REQUEST_ID, envelope.TIMEOUT, envelope.DEADLINE, envelope.STATE),
    } - {UNREADABLE_HEADER}


def test_the_headers_written_are_those_of_the_document() -> None:
    """Every name that an answer can carry is there, and no other."""
    sent = [(name, b"1") for name in (*envelope.ECHOED, "request-id")]
    exchange = record(value=side("json", "request").value)._replace(headers=sent)
    binary = exchange._replace(headers=[*sent, ("accept", b"application/octet-stream")])
    outputs = arrays("json", signature("json").outputs)
    narrow = Codec([signature("json")], Wire("responses", "group", max_answer_bytes=1000), tell=lambda _: None)
    [(_, large)] = narrow.read([exchange._replace(key=b"k" * 1000, value=b"no")]).rejections

    messages = [
        answer(codec("json"), exchange, outputs),
        answer(codec("rows"), golden("rows"), arrays("rows", signature("rows").outputs)),
        answer(codec("json"), binary, outputs),
        *narrow.messages([large]),
    ]

    assert {name.lower() for message in messages for name in text_of(message)} == documented("answerHeaders")


def test_the_headers_of_dead_letters_are_those_of_the_document() -> None:
    """The document lists our headers; the request's own go before them."""
    assert documented("deadLetterHeaders") == dead_letters._OURS
