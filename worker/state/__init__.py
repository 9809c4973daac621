"""State by key: what a model remembers of each key from one request to the next.

    request ─▶ `ByKey` (one of a key at a time) ─▶ batcher ─▶ `StatefulStacker`: one gather of all states
      ─▶ one inference ─▶ `KeyStates.conclude`: one write of all states ─▶ changelog, beside the answers

`states` has the states of a changelog, `outside_states` those of a server; both keep them in `slabs`, by `key_slots`.
Pure: no Kafka, no clock, no thread. Every call is made by the loop's thread.
"""

from worker.state.by_key import ByKey, StateFetch
from worker.state.changes import StatefulEncoder, tombstone_of
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
    "StatefulEncoder",
    "StatefulStacker",
    "layout_of",
    "tombstone_of",
    "why_not",
]
