"""Measurements that are run by hand, never by `make test`, and never shipped.

    suite.py      the worker next to other loops and frameworks, on one broker (`make bench`); its tables: RESULTS.md
    cases/        one module for each thing that the suite measures
    loops/        loops written by hand; peers/: other people's frameworks, in an environment of their own
    native/       the ceiling, a worker in C
    gpu/          the worker on a GPU, a command of its own
    client.py, lingers.py, score.py: one question each, each a command of its own

Worker processes and paced loads are those of `inference-worker bench` (`worker/tools/`).
"""
