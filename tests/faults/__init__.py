"""A seeded mix of faults against whole workers on a real Kafka, judged by an independent checker.

`python -m tests.faults.run` is the command. Reading order: `requests` (the requests, and their right answers),
`records` and `avro_records` (requests that are records), `memories` (the right states and outputs of models with
state), `plan` (the faults in time), `books` (the promises, judged), `checker` (reads Kafka), `load` (publishes),
`fleet` (the replicas), `faults` (hurts them), `strangers` (other producers, and a disk), `run`, `table`.
No judging module imports `worker`, and from other tests they import only models and the start of processes: a mistake
in how those tests read answers must not hide here.
"""
