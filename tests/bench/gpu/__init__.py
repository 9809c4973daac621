"""The worker on a GPU, part by part: `python -m tests.bench.gpu`. Without a GPU `--device cpu` rehearses it.

networks.py   what is measured, in FP32 and FP16, with its requests
stage.py      what a part is, and what it is given
results.py    a part's JSON file, written line by line
sessions.py   ONNX Runtime alone, opened as one does it by hand; the worker's own model; how long a run takes
events.py     CUDA's own clock
nvml.py       busy, power and memory of the device, by its driver
serving.py    from Kafka to Kafka: a backlog, then loads
loops.py      the loops that the worker is compared with
parts/        one module for each part
tables.py     the JSON files as Markdown

The tests of `tests/gpu` say whether it is right; these say how fast it is. How to go through all of it on a machine
that is at hand for half an hour stands in `docs/benchmarks.md`.
"""
