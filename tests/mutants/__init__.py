"""What the tests are worth: the worker broken on purpose, one bug at a time, and which test notices.

`python -m tests.mutants [NAME...]` plants each bug whose name contains a NAME, or all, runs the tests that are there to
catch it, and prints which one did. It ends with 1 if a bug survives. `--all` goes on after the first test that fails,
and shows every one. The bugs are written down where their tests are: those of the simulator in
`tests/properties/simulation/mutants.py`, those of single tests in `tests/unit/test_planted.py`. `make test` plants each
of them, too.
"""
