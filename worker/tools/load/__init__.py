"""The load that `bench`, `demo` and the benchmarks put on workers, the workers, and what is measured of them.

pace ──▶ generator ──(publisher process)──▶ Kafka ──▶ replica ──▶ Kafka ──(reader process)──▶ figures
"""
