"""Batched ONNX inference from Kafka request topics to a Kafka response topic, nothing lost.

Reading order: `loop/` (the loop's thread), `core/` (the decisions), then the packages that act: `kafka/`, `inference/`,
`codecs/`, `delivery/`, `telemetry/`. `assembly.py` wires them together; `app.py` starts and ends them. `commands/` has
the commands that a deployment needs, `tools/` the commands for people.
"""
