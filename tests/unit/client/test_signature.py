"""A signature that is fetched: from which servers, how long it may take, and how many bytes it may have."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from inference_client import Signature, signature
from tests.unit.client.builders import METADATA, SIGNATURE


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address of an HTTP server that serves its files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_a_signature_is_fetched(served: tuple[Path, str]) -> None:
    """The server has the model's metadata in the form of the Open Inference Protocol."""
    folder, address = served
    (folder / "m").write_text(json.dumps(METADATA))

    assert Signature.fetch(f"{address}m") == signature.signature_of(f"{address}m") == SIGNATURE
    with pytest.raises(ValueError, match=r"/none: 404 File not found: <!DOCTYPE HTML>"):
        Signature.fetch(f"{address}none")
    with pytest.raises(ValueError, match="begins with http"):
        Signature.fetch("file:///etc/passwd")


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_dribbles_is_not_waited_for(drip: bytes) -> None:
    """Headers or body come so slowly that each byte arrives before the socket's own timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        is_over = threading.Event()

        def dribble() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(drip)
                while not is_over.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/m"
        with pytest.raises(TimeoutError, match=r"/m: no metadata of a model within 0\.3 s"):
            Signature.fetch(address, timeout=0.3)
        is_over.set()
        thread.join()


def test_metadata_without_an_end_is_not_read(served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client holds no more in memory than the longest metadata of any model."""
    folder, address = served
    (folder / "m").write_text(json.dumps(METADATA))
    monkeypatch.setattr(signature, "_MOST_METADATA", len(json.dumps(METADATA)))
    assert Signature.fetch(f"{address}m") == SIGNATURE

    (folder / "m").write_text(json.dumps(METADATA) + " ")

    with pytest.raises(ValueError, match=r"/m: over .* bytes: no metadata of a model is so long"):
        Signature.fetch(f"{address}m")
