"""What batching buys on a device, and what to set: measured, simulated, advised.

    runner ──▶ sweep ──▶ SizeTimings per size ──▶ knee
                              └──▶ MeasuredCosts ──▶ forecast ──▶ advice
    runner at lengths ──▶ grid ──▶ LengthCosts ─┬─▶ boundaries ──▶ padding, before and after
                         lengths of a sample ───┘

Nothing here knows Kafka, ONNX Runtime, settings or a clock of its own: `tools/profile/command.py` brings them.
"""
