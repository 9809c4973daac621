"""The worker on a real GPU: `make test-gpu`. Skipped, with the reason, where there is none.

nets.py                networks, what they are fed, and their forms in FP16
test_right_answers.py  what CUDA gives is what the CPU gives, whatever shares the batch
test_kinds.py          every kind of model that the worker takes
test_start_checks.py   the start's trial of rows refuses no good network
test_device.py         CUDA is what runs; a batch that does not fit
test_whole_worker.py   the same through a worker, between topics of a real Kafka
pack.py, run.sh        what a machine without a network is brought, and what is started there

How fast it is says `bench/gpu`. A device that falls off needs no GPU: `tests/cuda/test_whole_worker.py`.
"""
