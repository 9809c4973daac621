"""The worker on a GPU, part by part: `python -m bench.gpu`. Without a GPU `--device cpu` rehearses it.

networks.py           the networks, in FP32 and FP16, with their requests
results.py            a part's description, its JSON file, and the file as a table
sessions.py           ONNX Runtime alone, opened as one does it by hand; the worker's own model; the time of a run
device.py             CUDA's own clock; busy, power and memory of the device, by its driver
serving.py, loops.py  from Kafka to Kafka: a backlog, then loads; the loops that the worker is compared with
main.py, knee.py      the parts: the main job, batch sizes
hosts.py              a part: the model in a process of its own, and in a thread
copies.py, lanes.py   further parts: the memory that batches are copied from, sessions that lanes share or not

The tests of `tests/gpu` check that it is right; these measure how fast it is. `docs/benchmarks.md` says how to run all
parts on a machine that is available for half an hour.
"""
