"""What is measured by hand, never in `make test`.

    suite.py      the worker beside other loops and frameworks, on one broker (`make bench`); its tables: RESULTS.md
    cases/        what the suite measures, a module each, by what measuring/ offers
    loops/        loops written by hand; peers/: other people's frameworks, in an environment of their own
    crayfish/     a published benchmark by its own rules, a command of its own
    guarantees, lingers, overheads, judging, score, tracing: one question each, each a command of its own

Loads and worker processes are those of `inference-worker bench` (`worker/tools/load/`).
"""
