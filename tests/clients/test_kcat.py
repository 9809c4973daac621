"""The kcat lines of `schemas/README.md`, run as on the page, against a worker on a real Kafka.

kcat is Debian's package of that name; without it these tests are skipped.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.clients.stage import REQUESTS, Stage, block, stage
from tests.kafka.cluster import Cluster

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on the PATH")

# A command `protoc`, as a user has it: the project's own compiler of messages.
PROTOC = f'#!/bin/sh\nexec "{sys.executable}" -m grpc_tools.protoc -I. "$@"\n'


@pytest.fixture(scope="module")
def kcat(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage where the page's requests are published."""
    with stage(kafka, tmp_path_factory) as found:
        (found.bin / "protoc").write_text(PROTOC)
        (found.bin / "protoc").chmod(0o755)
        found.run("sh", "-e", str(found.program("publish.sh")))
        yield found


def test_each_encoding_gets_its_answer(kcat: Stage) -> None:
    """Answers to the page's requests have their keys, their order, and the model's numbers."""
    answers = kcat.answers()

    assert [(found.key, dict(found.headers)["request-id"]) for found in answers] == [
        (b"user-7", name.encode()) for name in REQUESTS
    ]
    assert [dict(found.headers)["status"] for found in answers] == [b"ok"] * 4 + [b"error"] * 2


def test_the_page_s_lines_read_every_encoding(kcat: Stage) -> None:
    """They find an answer's value by its request's id, and print the page's output."""
    kcat.answers()

    printed = kcat.run("sh", "-e", str(kcat.program("answers.sh")))

    assert printed == block("kcat-values-printed").text


def test_the_page_s_lines_drop_repeats(kcat: Stage) -> None:
    """Each answer came twice, and its headers are printed once."""
    kcat.repeat_and_end()

    lines = kcat.run("sh", "-e", str(kcat.program("headers.sh"))).splitlines()

    found = [line.rpartition("request-id=")[2] for line in lines]
    assert found == [*REQUESTS, "end"]
