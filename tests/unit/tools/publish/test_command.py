"""Orders that `publish` refuses before it looks for a broker."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.settings.for_commands import load_client
from worker.tools.options import PublishOrder
from worker.tools.publish.command import _reading, _requests, publish
from worker.tools.publish.requests import Publishable, read_line


@pytest.mark.parametrize("setting", ["RESPONSE_TOPIC", "DEAD_LETTER_TOPIC"])
def test_nothing_is_published_to_where_workers_write(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """Readers of answers would take the requests for answers."""
    monkeypatch.setenv(f"WORKER_KAFKA__{setting}", "theirs")

    with pytest.raises(BadConfiguration, match=f"--topic theirs: is WORKER_KAFKA__{setting}, and its readers would"):
        publish(PublishOrder(file="-", topic="theirs", bootstrap_servers="127.0.0.1:9"))


def test_made_up_requests_of_a_model_with_state_want_a_key(tmp_path: Path) -> None:
    """Each request without a key would get an error."""
    path = models.save(models.gru(), tmp_path)
    environ = {"WORKER_MODEL__PATH": str(path), "WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}

    with pytest.raises(BadConfiguration, match=r"say --key 'made-up-\{n\}'"):
        _requests(PublishOrder(random=2), read_line, environ, ExitStack())
    assert len(list(_requests(PublishOrder(random=2, key="k"), read_line, environ, ExitStack()))) == 2


BROKERS = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092"}
OF_JSON, OF_TEXT = ({**BROKERS, "WORKER_RECORDS__ENCODING": encoding} for encoding in ("json", "text"))


def published(line: bytes, environ: Mapping[str, str], **order: object) -> Publishable:
    """The record of a line, under these settings."""
    return _reading(PublishOrder(file="-", **order), load_client(None, environ))(line)  # type: ignore[arg-type]  # options


def test_a_line_for_a_topic_of_records_goes_as_it_stands() -> None:
    """It has no header, and its key is that of the given field. `--records` says so without settings, too."""
    line = b'{"id": 17, "customer": {"id": "c-1"}, "value": 2}'

    assert published(line, OF_JSON) == published(line, BROKERS, records=True) == Publishable(line)
    assert published(line, OF_JSON, key_field="customer.id") == Publishable(line, b"c-1")
    assert published(line, OF_JSON, key_field="id") == Publishable(line, b"17")
    assert published(b"a text", OF_TEXT) == Publishable(b"a text")
    assert published(b'{"value": 2}', OF_JSON, records=False).value == b"2"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[1]", "no JSON object; with --no-records"),
        (b"{", "not JSON: unexpected"),
        (b'{"id": 1.5}', "id, its key, must be a text or a whole number"),
        (b'{"id": true}', "id, its key"),
        (b"{}", "id, its key"),
    ],
)
def test_a_line_that_is_no_such_record_is_refused(line: bytes, why: str) -> None:
    """A mistake in the file is found here, and not by the worker."""
    with pytest.raises(BadConfiguration, match=why):
        published(line, OF_JSON, key_field="id")


@pytest.mark.parametrize(
    ("environ", "order", "why"),
    [
        (OF_JSON, {"file": None, "random": 3}, "--random: .* name a FILE"),
        (
            {**BROKERS, "WORKER_RECORDS__ENCODING": "registry", "WORKER_REGISTRY__URL": "http://localhost:8081"},
            {"file": "-"},
            "value_base64",
        ),
        (BROKERS, {"file": "-", "key_field": "id"}, "say --records"),
        (OF_TEXT, {"file": "-", "key_field": "id"}, "only records in JSON"),
    ],
)
def test_what_no_line_can_be_is_refused(environ: Mapping[str, str], order: Mapping[str, object], why: str) -> None:
    """The message names what to do instead."""
    with pytest.raises(BadConfiguration, match=why):
        _reading(PublishOrder(**order), load_client(None, environ))  # type: ignore[arg-type]  # options
