"""The worker on a real GPU: `make test-gpu`. Skipped, with the reason, where there is none.

nets.py                networks, their inputs, and their forms in FP16
test_right_answers.py  CUDA's results are the CPU's, whatever shares the batch
test_kinds.py          every kind of model that the worker takes
test_start_checks.py   the start's trial of rows refuses no good network
test_device.py         all kernels run on CUDA; a batch that does not fit
test_whole_worker.py   CUDA in a worker, between topics of a real Kafka
pack.py, run.sh        the packing for a machine without a network, and the start there

`bench/gpu` measures the speed. A device that falls off needs no GPU: `tests/cuda/test_whole_worker.py`.
"""
