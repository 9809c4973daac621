"""The wire contract in code: headers and bytes to named tensors and back. `schemas/README.md` tells it without code."""

from worker.codecs.registry import Codecs, SingleCodecs
from worker.codecs.room import lack_of_room
from worker.codecs.wire import Wire

__all__ = ["Codecs", "SingleCodecs", "Wire", "lack_of_room"]
