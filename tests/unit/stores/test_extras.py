"""Stores, and a registry, whose library belongs to an extra that is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from worker.core.failures import BadConfiguration


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("worker.stores.local", "lmdb", "state-directory"),
        ("worker.stores.server", "redis", "state-store"),
        ("worker.registry.client", "confluent_kafka.schema_registry", "registry"),
    ],
)
def test_a_start_says_which_extra_to_install(
    module: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start ends with one line and exit code 2; only workers with such a store, or a registry, import it."""
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, module, raising=False)

    with pytest.raises(BadConfiguration, match=rf"pip install '\.\[{extra}\]'"):
        importlib.import_module(module)
