"""`python -m worker`: the console script where it is not on the path."""

from worker.cli import main

main()
