"""Measures the tests: breaks the worker on purpose, one bug at a time, and shows which test notices.

`python -m tests.mutants [NAME...]` plants each bug whose name contains a NAME, or all bugs, runs the tests that should
catch it, and prints which one did. It ends with 1 if a bug survives. `--all` goes on after the first failing test, and
shows every one. The bugs are next to their tests: the simulator's in `tests/properties/simulation/mutants.py`, single
tests' in `tests/unit/test_planted.py`. `make test` plants all of them, too.
"""
