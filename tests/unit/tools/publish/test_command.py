"""Orders that `publish` refuses before it looks for a broker."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import models
from worker.core.failures import BadConfiguration
from worker.tools.options import PublishOrder
from worker.tools.publish.command import _requests, publish


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
        _requests(PublishOrder(random=2), environ, ExitStack())
    assert len(list(_requests(PublishOrder(random=2, key="k"), environ, ExitStack()))) == 2
