"""Is a full batch over before an inference counts as hung? If not, the first one ends the worker, at each restart anew.

It shows at start, where the model runs so many rows anyway. Owns nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from worker.core.failures import BadConfiguration
from worker.inference.model import Model


def check_run_time(model: Model, rows: int, longest: float, now: Callable[[], float] = time.monotonic) -> None:
    """Raises `BadConfiguration` where a batch of so many rows takes more than `longest` seconds.

    It is run once more, as a first run sets things up, and only where the whole warm-up took that long: nearly never.
    """
    if model.warm_up_seconds <= longest:
        return
    feeds = model.blank(rows)
    began = now()
    model.run(feeds)
    if (seconds := now() - began) <= longest:
        return
    fewer = "" if rows == 1 or model.padding else "lower WORKER_BATCHING__MAX_BATCH_SIZE, "
    raise BadConfiguration(
        f"a full batch, {rows} row{'s' if rows > 1 else ''}, took {seconds:.1f} s at start, and an inference of more "
        f"than {longest:g} s counts as hung and ends the worker: {fewer}raise WORKER_MODEL__RUN_TIMEOUT_S, or give an "
        "inference more cores (WORKER_MODEL__INTRA_OP_NUM_THREADS)"
    )
