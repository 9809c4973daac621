"""Benchmarks that people run by hand. `make test` does not run them, and they are not shipped.

    suite.py      the worker next to other loops and frameworks, on one broker (`make bench`); its tables: RESULTS.md
    cases/        one module for each thing that the suite measures
    loops/        loops written by hand; peers/: other people's frameworks, in an environment of their own
    native/       the upper limit: a worker in C
    mappings/     what a user writes to have records answered
    gpu/          the worker on a GPU, a command of its own
    client.py, lingers.py, score.py: one question each, each a command of its own

They use the worker processes and paced loads of `inference-worker bench` (`worker/tools/`).
"""
