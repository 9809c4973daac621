"""Crayfish (EDBT 2024), a published benchmark of inference in streams, on our worker: `python -m tests.bench.crayfish`.

rules.py      what it fixes, and how it judges a run
events.py     its two networks, and events for them
published.py  what it found, each figure with the place where it stands
serving.py    one run: replicas, a load, what came of it
"""
