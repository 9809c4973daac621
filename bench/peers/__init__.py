"""Other people's frameworks, each doing the comparison's task as its documentation says one should for throughput.

Run by the Python of an environment of their own (`make bench` makes it from `peers.txt`), never by this project's:

    build/peers/bin/python -m bench.peers.NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH

Batches and one inference for each of them wherever the framework knows batches; answers carry the request's key; one
thread an inference. Each file says what it sets and what it leaves at its default.
"""
