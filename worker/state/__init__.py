"""State by key: the tensors that a model remembers of each key from one request to the next.

    chunk ─▶ `ByKey` (one record of a key at a time) ─▶ batcher ─▶ `StatefulStacker`: one gather of all states
      ─▶ one inference ─▶ `KeyStates.conclude`: one write of all states ─▶ `KeyStates.leave`, together with the answers

`states` handles states with a changelog, `outside_states` states in an outside server. Both keep them in `slabs`, and
find them through `key_slots`. Pure: no Kafka, no clock, no thread. The loop's thread makes every call.
"""

from worker.state.by_key import ByKey, StateFetch
from worker.state.changes import tombstone_of
from worker.state.layout import StateLayout, layout_of
from worker.state.outside_states import OutsideStates
from worker.state.outside_values import OutsideValues
from worker.state.restoring import Extent, Restoration, RestoredRows, why_not
from worker.state.stacker import StatefulStacker
from worker.state.states import KeyStates

__all__ = [
    "ByKey",
    "Extent",
    "KeyStates",
    "OutsideStates",
    "OutsideValues",
    "Restoration",
    "RestoredRows",
    "StateFetch",
    "StateLayout",
    "StatefulStacker",
    "layout_of",
    "tombstone_of",
    "why_not",
]
