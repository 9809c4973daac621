"""Batched ONNX inference from Kafka request topics to a Kafka response topic, nothing lost.

Reading order: `loop/` (the one thread of control), `core/` (what is decided), then the rooms that act: `kafka/`,
`inference/`, `codecs/`, `delivery/`, `telemetry/`. `assembly.py` wires them together, `app.py` starts and ends them.
`commands/` holds what a deployment needs, `tools/` what a person types besides.
"""
