"""`inference-worker records try`: tries the mapping of the settings on a file of records, without Kafka."""

from __future__ import annotations

import os

from worker.settings.for_commands import load_scoring, unset
from worker.tools.options import ScoreOrder
from worker.tools.records.options import TryOrder
from worker.tools.score.command import score


def try_records(order: TryOrder) -> int:
    """Try them. Returns 0 if all have answers. Raises `Incomplete` if not, and `BadConfiguration` without a mapping."""
    settings = load_scoring(order.config, os.environ)
    if settings.records is None:
        raise unset(
            "[records]: there is no mapping to try; `inference-worker records infer` proposes one", order.config
        )
    return score(ScoreOrder(model=settings.model.path, file=order.file, whole=order.whole, config=order.config))
