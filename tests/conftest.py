"""Settings for every test: the same examples on every machine, and no settings from the environment."""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.kafka.broker import SHORT_LIVED, JvmBroker
from tests.kafka.fixtures import _hurt_broker, _registry, hurt_broker, kafka, new_broker, own_broker, registry, theirs

__all__ = [
    "_hurt_broker",
    "_registry",
    "hurt_broker",
    "kafka",
    "new_broker",
    "own_broker",
    "registry",
    "theirs",
]  # one broker serves the whole run: fixtures are registered once, here

# Derandomised: a failure belongs to a change, not to the hour of day. No deadline, and no check of the time that an
# example takes to make: CI machines are shared.
settings.register_profile(
    "worker", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("worker")

# Hypothesis also tries constants from the source of imported modules. The examples would then depend on the modules
# that the process has imported, and on the checkout's folder: one that is called "tests" is left out.
providers.is_local_module_file = lambda _: False  # type: ignore[attr-defined,assignment]  # theirs, cached

JvmBroker.java_options = SHORT_LIVED

# This must happen before onnxruntime is imported anywhere: see `worker/inference/__init__.py`.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# A background job of a script, or a command under nohup, ignores these signals. Every process that the tests start
# would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

for name in [name for name in os.environ if name.startswith("WORKER_") and "__" in name]:
    del os.environ[name]


def pytest_collection_finish() -> None:
    """Take what collection made out of the garbage collector's sight; a run then takes 5 % less processor time."""
    gc.freeze()
