"""Texts of all lengths for ten minutes, as many as come in an hour: whether the device's memory grows, or breaks up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tests.bench.gpu.networks import Network
from tests.bench.gpu.nvml import watching
from tests.bench.gpu.results import Line
from tests.bench.gpu.serving import alone, ready, workers
from tests.bench.gpu.stage import NETWORK, Case, Column, Part, Stage, of
from tests.bench.measuring.ground import PARTITIONS, response_topic
from tests.bench.measuring.pace import Load, connection
from worker.codecs.examples import EncodedRequest

SLOTS = 5
KINDS = 10_000
LEAST, MOST = 64, 4096  # requests under way; half of a second's, where the device is slow
HOW = """A closed loop, 4,096 requests always under way on a quick device, in five parts one after the other. Buckets:
texts are padded to five lengths. Every length alone: no padding, so that each batch has a length of its own, which is
the worst for the arena. MiB are the whole device's, at most in that part."""
COLUMNS = (
    *NETWORK,
    Column("what", "what"),
    Column("slot", "part", "d"),
    Column("seconds", "seconds", ".0f"),
    Column("rate", "results/s", ",.0f"),
    Column("used_mib", "MiB in use", ",.0f"),
    Column("busy", "busy, NVML", ".0%"),
)
WAYS = {"buckets": {}, "every length alone": {"BATCHING__BUCKETS": "{}"}}


def cases(stage: Stage) -> Iterator[Case]:
    """The first ragged network, both ways, half of the time each."""
    for network in [each for each in stage.networks if each.is_ragged][:1]:
        for what, settings in WAYS.items():
            yield Case(of(network, what=what), partial(_network, stage, network, settings))


def _network(stage: Stage, network: Network, settings: dict[str, str]) -> Iterator[Line]:
    seconds = stage.minutes * 60 / len(WAYS) / SLOTS
    offered = [EncodedRequest(network.form.headers, value) for value in network.form.values(KINDS)]
    outstanding = int(min(MOST, max(LEAST, alone(stage, network) / 2)))
    requests = stage.cluster.create_topic("bench-requests", partitions=PARTITIONS)
    job = stage.job(network, [requests], **settings)
    with (
        Load(connection(stage.cluster.bootstrap_servers), offered) as load,
        response_topic(stage.cluster) as responses,
        workers(job, responses) as contenders,
    ):
        ready(contenders[0])
        load.open(requests, responses)
        load.wait_until_answering()
        for slot in range(1, SLOTS + 1):
            with watching(stage.device) as watch:
                rate = load.most(seconds, outstanding)
            assert (why := contenders[0].why_dead()) is None, why
            yield {"slot": slot, "seconds": seconds, "rate": rate, **watch.figures, "missing": watch.why}
    stage.cluster.delete_topic(requests)


def notes(lines: Sequence[Line]) -> list[str]:
    """The last part beside the first."""
    found = []
    for what in WAYS:
        ours = [line for line in lines if line.get("what") == what and "rate" in line]
        if len(ours) > 1:
            first, last = ours[0], ours[-1]
            kept = float(last["rate"] or 0) / float(first["rate"] or 1)
            said = f"{what}: part {last['slot']} has {kept:.2f} of the first one's rate"
            memory = [float(used) for line in (first, last) if (used := line.get("used_mib")) is not None]
            found.append(f"{said}, and {memory[1] - memory[0]:+,.0f} MiB" if len(memory) > 1 else said)
    return found


PART = Part("ragged", "On a GPU: ragged lengths", HOW, COLUMNS, cases, limit=660, has_kafka=True, notes=notes)
