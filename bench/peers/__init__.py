"""Other people's frameworks. Each does the comparison's task as its documentation advises for throughput.

They run with the Python of their own environment (`make bench` makes it from `peers.txt`), never with this project's:

    build/peers/bin/python -m bench.peers.NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH

If a framework knows batches, it runs one inference for each batch. Answers carry the request's key, and an inference
has one thread. Each file says what it sets and what it leaves at its default.
"""
