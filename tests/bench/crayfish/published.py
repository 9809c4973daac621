"""What Crayfish found, each figure with the place where it stands.

All of them are outputs kept in its notebook `results-analysis/aggregates-final.ipynb` at the commit below; the paper's
own tables were not compared. Kafka, producer and stream processor had machines of their own
(`global-configs-cluster.properties`), whose sizes the repository does not tell.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "https://github.com/soniahorchidan/crayfish23, ba37ad1f11a768c96a50f2eefe293b285a4b5968"
SINGLE = "Sustainable throughput"
SCALED = "Vertical Scalability"
TASKS = "Parallelism Models"


class Throughput(NamedTuple):
    """Events a second, by that part of the notebook. `copies`: of the model."""

    network: str
    system: str
    copies: int
    rate: float
    stands: str


THROUGHPUTS = (
    Throughput("FFNN", "Kafka Streams + ONNX", 1, 1911.2, "KafkaStreams; the best of 512, 2,048 and 8,192/s asked"),
    Throughput("FFNN", "Kafka Streams + ONNX", 1, 1618.6, f"{SINGLE}; the best of 512, 1,024, 4,096 and 8,192/s asked"),
    Throughput("FFNN", "Kafka Streams + ONNX", 2, 3154.6, SCALED),
    Throughput("FFNN", "Kafka Streams + ONNX", 32, 23008.3, SCALED),
    Throughput("FFNN", "Flink + ONNX", 1, 1087.0, "Flink, N-N-N"),
    Throughput("FFNN", "Flink + ONNX", 2, 1912.2, SCALED),
    Throughput("FFNN", "Flink + ONNX, 32 tasks to read and write", 1, 4884.1, "Flink, 32-N-32"),
    Throughput("FFNN", "Flink + ONNX, 32 tasks to read and write", 8, 14957.8, f"{TASKS}; the best of 2 to 32"),
    Throughput("ResNet-50", "Flink + ONNX", 1, 2.168, "Flink, ResNet50"),
    Throughput("ResNet-50", "Flink + ONNX", 2, 4.235, SCALED),
    Throughput("ResNet-50", "Flink + ONNX", 16, 23.03, f"{SCALED}; the best of 2 to 32"),
)


class Latency(NamedTuple):
    """Mean milliseconds of an event of so many images for the FFNN, one event every three seconds."""

    flink: float
    kafka_streams: float


LATENCIES = {32: Latency(53.9, 134.4), 128: Latency(167.4, 201.6), 512: Latency(758.8, 513.9)}
