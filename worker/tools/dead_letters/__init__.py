"""`inference-worker dead-letters`: why requests were rejected, each rejected request whole, and the way back.

`listing`, `showing` and `replaying` are the three commands; `asking` is what they ask Kafka for alike, `texts` how what
they found is shown.
"""
