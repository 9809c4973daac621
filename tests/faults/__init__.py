"""A seeded mix of faults against whole workers on a real Kafka, and what a checker of its own saw of it.

`python -m tests.faults.run` is the command. Reading order: `requests` (what is asked, and what must come back),
`memories` (what models with state are to tell and to leave), `plan` (which fault when), `books` (the promises, judged),
`checker` (reads Kafka), `load` (publishes), `fleet` (the replicas), `faults` (what is done to them), `strangers` (other
producers, and a disk), `run`, `table`.
Nothing that judges imports `worker`, and all of it imports of the other tests only models and what starts processes: a
mistake in how answers are read there must not hide here.
"""
