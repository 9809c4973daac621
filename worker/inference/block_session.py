"""A session whose columns are joined to blocks before each run (`graph_blocks.py`). No other part sees a block.

It pays because ONNX Runtime's binding takes about 6 µs of CPU for an input, and for 500 ones ten times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from worker.core.records import Array
from worker.inference.graph_blocks import Blocks, Joined, in_blocks
from worker.inference.model_file import LOCATION, LoadableModel, small_content

if TYPE_CHECKING:
    import onnxruntime as ort

_size = attrgetter("nbytes")


def blocks_of(loadable: LoadableModel) -> Blocks | None:
    """The model with blocks; None if it has none, has weights in other files, or cannot be changed."""
    try:
        content = small_content(loadable)
        blocks = None if content is None else in_blocks(content)
    except (OSError, ValueError, IndexError):  # the session says what is wrong with it
        return None
    return None if blocks is None or LOCATION.search(blocks.model) else blocks


class BlockSession:
    """A session of a changed model, with the inputs of the model as it was. Several threads may call `run` at once."""

    def __init__(self, session: ort.InferenceSession, blocks: Blocks) -> None:
        self._session = session
        self._joined = blocks.joined
        own = {node.name: node for node in session.get_inputs()}
        every = [own.get(name) if shown is None else shown for name, shown in blocks.inputs.items()]
        self._inputs = [node for node in every if node is not None]  # one with a value in the file is not shown
        self._others = [node.name for node in self._inputs if node.name in own]

    def get_inputs(self) -> Sequence[Any]:
        """The inputs of the model as it was."""
        return self._inputs

    def run(self, names: Sequence[str], feeds: Mapping[str, Array], options: Any = None, /) -> Sequence[Array]:
        """These outputs, in order. Raises as a session does."""
        given = {name: feeds[name] for name in self._others}
        for block in self._joined:
            given[block.name] = _joined(block, feeds)
        outputs: Sequence[Array] = self._session.run(names, given, options)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _joined(block: Joined, feeds: Mapping[str, Array]) -> Array:
    """An array of shape (columns, rows). To join bytes takes a quarter of the time of `np.concatenate` (2026-11)."""
    arrays = [feeds[name] for name in block.columns]
    if len(set(map(_size, arrays))) > 1:
        raise ValueError("the inputs have unequal numbers of rows")
    try:
        return np.frombuffer(b"".join(arrays), arrays[0].dtype).reshape(len(arrays), -1)  # type: ignore[arg-type]  # arrays are buffers
    except TypeError:  # one is not in one piece
        return np.concatenate(arrays).reshape(len(arrays), -1)
