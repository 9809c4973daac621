"""The decisions: no I/O, no threads, no clock, no logging. Whoever calls brings the time."""
