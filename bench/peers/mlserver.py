"""MLServer's Kafka server with ONNX Runtime behind its adaptive batching.

Set: batches of the asked size, with a linger of 5 ms; no worker processes (a second one costs a copy of each
tensor, and the machine has few cores); no log line per message. It has no consumer group: it reads only records
published after its start, commits nothing, and loses the requests that it holds when it dies.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters
from mlserver.types import InferenceRequest, InferenceResponse

from bench.loops.task import Run, Task, model_call

LINGER = 0.005  # seconds


class Onnx(MLModel):
    """The model, called with the batch that MLServer has gathered."""

    _run: Run

    async def load(self) -> bool:
        """Called once at the start."""
        task = Task.from_command_line()
        self._run = model_call(task.model, task.batch)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run one inference for a batch of requests, which MLServer joins and splits."""
        results = self._run(NumpyCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", results)])


def main() -> None:
    """Run until killed."""
    task = Task.from_command_line()
    logging.disable(logging.INFO)
    settings = Settings(
        host="127.0.0.1",
        http_port=_free_port(),
        grpc_port=_free_port(),
        metrics_port=_free_port(),
        parallel_workers=0,
        kafka_enabled=True,
        kafka_servers=task.bootstrap,
        kafka_topic_input=task.requests,
        kafka_topic_output=task.responses,
    )
    model = ModelSettings(
        name="model",
        implementation=Onnx,
        parameters=ModelParameters(uri=task.model),
        max_batch_size=task.batch,
        max_batch_time=LINGER,
    )
    asyncio.run(MLServer(settings).start([model]))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
