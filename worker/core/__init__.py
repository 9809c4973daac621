"""The decisions: no I/O, no threads, no clock, no logging. The caller brings the time."""
