"""How long states take to read back, where the brokers do not say how many there are."""

from __future__ import annotations

import pytest

from tests.builders import signature, spec
from worker.commands.check import restoring
from worker.commands.check.restoring import restore_estimate
from worker.core.failures import Incomplete
from worker.settings import load
from worker.state import layout_of

MODEL = signature(spec("x"), spec("s"), outputs=(spec("y"), spec("t")))


def test_brokers_that_do_not_say_where_a_changelog_ends_are_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those do not that have no leader for one of its partitions. A worker would wait; `check` says so."""
    settings = load(
        None,
        {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "WORKER_KAFKA__REQUEST_TOPICS": "requests",
            "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
            "WORKER_KAFKA__CHANGELOG_TOPIC": "states",
            "WORKER_KAFKA__GROUP_ID": "g",
            "WORKER_MODEL__PATH": "model.onnx",
            "WORKER_STATE__TENSORS": '{"s": "t"}',
        },
    )
    layout, _ = layout_of(MODEL, settings.state.tensors, settings.state.initial, with_answer=False)
    monkeypatch.setattr(restoring, "PATIENCE", 0.1)

    with pytest.raises(Incomplete, match=r"--restore-estimate: the brokers have not told .* where states ends"):
        restore_estimate(settings, layout, 2)
