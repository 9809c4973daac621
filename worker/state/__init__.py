"""State by key: what a model remembers of each key from one request to the next.

    request ─▶ `ByKey` (one of a key at a time) ─▶ batcher ─▶ `StatefulStacker`: one gather of all states
      ─▶ one inference ─▶ `KeyStates.conclude`: one write of all states ─▶ changelog, beside the answers

| module | what it owns |
|---|---|
| `layout` | which inputs and outputs of the model are state, and how a state stands in the changelog |
| `states` | what a batch reads and writes, and what is being restored |
| `undos` | what an abort takes back |
| `expiry` | which states no request used for so long |
| `slabs` | the states, each in a slot |
| `key_slots` | which slot each key's state has, and which keys of a store outside have one |
| `stored_slots` | the same where not all keys fit into memory |
| `by_key` | the requests that wait for an earlier one of their key |
| `stacker` | state into the batch, and out of what the model gave |
| `changes` | the changelog's messages |
| `restoring` | which of them count when they are read back |
| `checkpoints` | how far into the changelog the states reach that a clean end leaves to the next start |
| `outside_states` | `states` where a store outside keeps them: what of them is in memory, and what comes |
| `outside_values` | how a state stands in that store |
| `fetch` | the requests that wait for a state from that store |

Pure: no Kafka, no clock, no thread. Every call is made by the loop's thread.
"""

from worker.state.by_key import ByKey
from worker.state.changes import StatefulEncoder, tombstone_of
from worker.state.extents import Extent, why_not
from worker.state.fetch import StateFetch
from worker.state.layout import StateLayout, layout_of
from worker.state.outside_states import OutsideStates
from worker.state.outside_values import OutsideValues
from worker.state.restoring import Restoration, RestoredRows
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
