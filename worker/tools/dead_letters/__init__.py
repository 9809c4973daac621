"""`inference-worker dead-letters`: why requests were rejected, each rejected request whole, and the way back.

`listing`, `showing` and `replay_command` are the three commands; `wanted_letters` is how all of them find letters, and
`texts` how they show them. `replay` is one run: `progress` knows which letters went already, `originals` makes their
requests again, `replay_group` sends these and remembers that in one transaction.
"""
