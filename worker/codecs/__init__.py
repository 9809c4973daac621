"""The wire contract in code: headers and bytes to named tensors and back. `schemas/README.md` tells it without code."""

from worker.codecs.message_sizes import lack_of_room, longest_key
from worker.codecs.registry import Codecs, SingleCodecs
from worker.codecs.wire_contract import Wire

__all__ = ["Codecs", "SingleCodecs", "Wire", "lack_of_room", "longest_key"]
