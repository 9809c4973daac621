"""The generated descriptor equals the one of the proto file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCHEMAS = Path(__file__).parents[3] / "schemas"


def test_the_descriptor_is_that_of_the_proto_file() -> None:
    """After a change of `inference.proto`, run `make proto`."""
    spec = importlib.util.spec_from_file_location("generate", SCHEMAS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)

    assert generate.MODULE.read_text(encoding="utf-8") == generate.generate()
