"""Inference over a file, without Kafka: the worker's own loop, codecs and batches between two files.

    LineSource | RowSource ──▶ codecs ──▶ loop, lanes ──▶ FileDelivery ──▶ LineWriter | ArrayWriter

A file is a partition, a line or a batch of rows a record, its number the offset. So what the worker refuses is refused
here, in the same words, and answers leave in order. Nothing here knows Kafka. `jobs.py` opens both ends, `Scorer`
runs what is between them.
"""
