"""Record topics on a real Kafka: the promises hold for JSON records as they do for requests."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.kafka.checker import answer
from tests.kafka.cluster import Cluster, Sent
from tests.kafka.collector import Collector
from tests.kafka.record_scene import (
    MAPPING,
    RecordScene,
    as_json,
    expect_answer,
    expect_error,
    payment,
    right_answer,
    sent,
    settings_of,
)
from tests.kafka.scene import quick_at_least_once, quick_exactly_once
from tests.kafka.test_dead_letters import Stage
from tests.kafka.test_state import Serial, last_states
from tests.kafka.test_tracing import PARENT, of_trace, traceparent
from tests.models import gru, model

KEYS = 97


def keyed(number: int) -> Sent:
    """The n-th payment, of one of some keys."""
    return sent(payment(number), b"key-%d" % (number % KEYS))


@quick_exactly_once
def test_no_record_is_lost_or_repeated_when_processes_are_killed(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """A replica and the model's host die under load, twice each: each record is answered, in order, and rightly."""
    with RecordScene(kafka, tmp_path, guarantee=guarantee) as scene:
        replica = scene.replica()
        with scene.publishing(800, lambda number: (scene.topic, keyed(number))) as load:
            for _ in range(2):
                scene.wait_for_progress(50)
                replica.kill_host()
                scene.wait_for_progress(50)
                replica.kill()
                replica = scene.replica()
            scene.wait_for_progress(50)
            load.stop()

        scene.expect_kept(repeats=20_000)
        scene.expect_right_answers()
        assert len(scene.acknowledged) > 1000


STEP, HIDDEN = 4, 16
STATE = {"STATE__TENSORS": json.dumps({"h_in": "h_out"})}
EVENTS: Mapping[str, object] = {
    "only": {"type": ["event"]},
    "inputs": {"x": ["a", "b", "c.d", "c.e"]},
    "answer": {"keep": ["id"], "y": "y"},
}


def event(number: int, key: bytes, **changes: object) -> Sent:
    """The n-th event of a key: four numbers for one step of the GRU."""
    a, b, d, e = steps(number).tolist()
    return sent({"type": "event", "c": {"e": e, "d": d}, "b": b, "a": a, "id": number, **changes}, key)


def steps(number: int) -> np.ndarray:
    return np.random.default_rng(number % 509).standard_normal(STEP).astype(np.float32)


def is_event(asked: Sent) -> bool:
    return b'"event"' in (asked.value or b"")


@quick_exactly_once
def test_the_state_of_a_key_is_that_of_its_right_events(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """A GRU fed from JSON, with wrong events and records of other kinds between, and a replica and a host killed."""
    network = gru(STEP, HIDDEN)
    settings = {**settings_of(**EVENTS), **STATE}

    def make(number: int) -> tuple[str, Sent]:
        key = b"key-%d" % (number * 7919 % 53)
        if number % 10 == 3:
            return scene.topic, sent({"type": "other", "a": 7}, key)
        if number % 50 == 7:
            return scene.topic, event(number, key, b="seven")
        return scene.topic, event(number, key)

    with RecordScene(kafka, tmp_path, settings, guarantee=guarantee, model=network, is_owed=is_event) as scene:
        changelog = kafka.create_topic("states", partitions=4, config={"cleanup.policy": "compact"})
        scene.settings |= {"KAFKA__CHANGELOG_TOPIC": changelog, "DELIVERY__GUARANTEE": guarantee}
        replica = scene.replica()
        with scene.publishing(600, make) as load:
            scene.wait_for_progress(80)
            replica.kill_host()
            scene.wait_for_progress(80)
            replica.kill()
            replica = scene.replica()
            scene.wait_for_progress(80)
            load.stop()
        scene.expect_kept(repeats=20_000)
        answers = scene.by_source()
        serial = Serial(network, {"h_in": "h_out"}, "y", "<f4")
        wrong = 0
        for position, asked in sorted(scene.acknowledged.items(), key=lambda item: item[0]):
            given = json.loads(asked.value or b"")
            if given["b"] == "seven":
                expect_error(answers[position], "INVALID_ARGUMENT", "b: expected a number")
                wrong += 1
                continue
            (y,) = serial.run(asked.key or b"", steps(given["id"]).tobytes()).tolist()
            fields = json.loads(answers[position].value or b"")
            assert fields["id"] == given["id"]
            np.testing.assert_allclose(fields["y"], y, 1e-4, 1e-4)
        assert wrong > 5
        scene.changelog = changelog  # type: ignore[attr-defined]  # as `last_states` asks for it
        kept = last_states(scene)  # type: ignore[arg-type]  # it has what is needed
        assert kept.keys() == serial.states.keys()
        for key, value in kept.items():
            found, right = np.frombuffer(value or b"", "<f4"), np.frombuffer(serial.state_bytes(key), "<f4")
            np.testing.assert_allclose(found, right, 1e-4, 1e-4)


@quick_at_least_once
def test_what_comes_too_late_is_not_run_and_the_rest_comes_back_as_it_was_asked(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Deadlines, ids, echoes, and another topic for the answer are those of any request."""
    replies = kafka.create_topic("replies")
    settings = {**settings_of(**MAPPING), "KAFKA__REPLY_TOPICS": replies}
    with RecordScene(kafka, tmp_path, settings, guarantee=guarantee, partitions=1) as scene:
        late = scene.publish_in_order([sent(payment(number), timeout_ms="100") for number in range(20)])
        time.sleep(0.15)
        replica = scene.replica()
        soon = scene.publish_in_order(
            [sent(payment(number), timeout_ms="600000", request_id=f"r-{number}") for number in range(20)]
        )
        (wrong,) = scene.publish_in_order([sent(payment(1, amount=None), request_id="wrong", correlation_id="c")])

        answers = scene.by_source()

        for position in late:
            expect_error(answers[position], "DEADLINE_EXCEEDED", "not run: the deadline was ")
        for number, position in enumerate(soon):
            expect_answer(answers[position], right_answer(payment(number)))
            assert answers[position].headers["request-id"] == f"r-{number}"
        expect_error(answers[wrong], "INVALID_ARGUMENT", "amount: expected a number")
        assert (answers[wrong].headers["request-id"], answers[wrong].headers["correlation-id"]) == ("wrong", "c")
        scene.expect_kept()
        kafka.produce(scene.topic, [sent(payment(5), reply_topic=replies), sent("{}", reply_topic=replies)])
        elsewhere = [answer(read) for read in kafka.read(replies, 2)]
        expect_answer(elsewhere[0], right_answer(payment(5)))
        expect_error(elsewhere[1], "INVALID_ARGUMENT", "missing")
        assert replica.is_running


def test_an_answer_has_the_field_for_its_key_that_key_names(kafka: Cluster, tmp_path: Path) -> None:
    """An error has the record's own key."""
    settings = settings_of(**MAPPING, key="customer.country")
    with RecordScene(kafka, tmp_path, settings, partitions=2) as scene:
        scene.replica()
        places = scene.publish_in_order([keyed(number) for number in range(40)])
        (wrong,) = scene.publish_in_order([sent({**payment(1), "customer": {"score": 1, "country": None}}, b"own")])

        answers = scene.by_source()

        for number, position in enumerate(places):
            right = right_answer(payment(number))
            expect_answer(answers[position], right)
            assert answers[position].key == right["country"].encode()
        expect_error(answers[wrong], "INVALID_ARGUMENT", "customer.country: expected ")
        assert answers[wrong].key == b"own"
        verdict = scene.verdict()
        assert (verdict.lost, verdict.disordered, verdict.repeats) == ([], [], 0)


def test_a_trace_goes_from_the_record_to_its_answer(kafka: Cluster, tmp_path: Path) -> None:
    """A sampled one gets a span of the worker's; another comes back as it is."""
    settings = {**settings_of(**MAPPING, only={"kind": ["payment"]}), "TELEMETRY__TRACING": "true"}
    with (
        Collector() as collector,
        RecordScene(
            kafka, tmp_path, settings, partitions=1, is_owed=lambda asked: b'"payment"' in (asked.value or b"")
        ) as scene,
    ):
        replica = scene.start(variables={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}).wait_until_ready()
        traced = [sent(payment(n, kind="payment"), traceparent=traceparent(n, sampled=n % 2 == 0)) for n in range(10)]
        other = sent(payment(10, kind="refund"), traceparent=traceparent(10))
        wrong = sent(payment(11, kind="payment", age="old"), traceparent=traceparent(11))
        places = scene.publish_in_order([*traced, other, wrong])
        answers = scene.by_source()
        scene.verdict().expect_clean()
        replica.terminate()
        assert replica.exit_code() == 0, replica.log

    processes = collector.named("process")
    assert len(processes) == 7
    assert [of_trace(processes, n).status.code for n in (0, 10, 11)] == [
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_UNSET,  # it was passed over, which is no error
        Status.STATUS_CODE_ERROR,
    ]
    for number in (0, 2, 4, 6, 8, 11):
        span = of_trace(processes, number)
        assert span.parent_span_id.hex() == PARENT
        assert answers[places[number]].headers["traceparent"] == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"
    assert answers[places[1]].headers["traceparent"] == traceparent(1, sampled=False)


ITEMS: Mapping[str, object] = {
    "rows": "items",
    "inputs": {"x": ["items[*].price", "items[*].count"]},
    "answer": {"keep": ["id"], "root": "y"},
}


def roots() -> bytes:
    """x FP32 (batch, 2) → y FP32 (batch): the root of the sum, NaN of a negative one."""
    return model(
        "float[batch, 2] x => float[batch] y", "sum = ReduceSum<keepdims = 0>(x, axis) y = Sqrt(sum)", {"axis": [1]}
    )


def order_of(number: int, rows: int, **changes: object) -> dict[str, object]:
    items = [{"price": (number + at) % 13 / 2, "count": at % 5, "name": "x" * (at % 9)} for at in range(rows)]
    return {"items": items, "id": number, **changes}


@quick_exactly_once
def test_a_record_of_many_rows_is_cut_and_joined_and_a_bad_row_is_one_record_s_error(
    kafka: Cluster, tmp_path: Path, guarantee: str
) -> None:
    """Records have more rows than a batch; one has no element, one a text, and one a number that the model fails on."""
    settings = {**settings_of(**ITEMS), "BATCHING__MAX_BATCH_SIZE": "16", "BATCHING__MAX_REQUEST_ROWS": "10000"}
    records = [order_of(number, rows) for number, rows in enumerate([1, 40, 3, 16, 17, 1000, 2] * 5)]
    wrong = {
        4: (order_of(4, 0), "INVALID_ARGUMENT", "items: expected an array with an element"),
        11: (order_of(11, 20), "INVALID_ARGUMENT", "items[17].count: expected a number"),
        19: (order_of(19, 50), "INTERNAL", "output root: the model answered NaN"),
        25: (order_of(25, 5, items=None), "INVALID_ARGUMENT", "items: expected an array"),
        30: (order_of(30, 20_000), "RESOURCE_EXHAUSTED", "20000 rows, at most "),
    }
    wrong[11][0]["items"][17]["count"] = "many"  # type: ignore[index]
    wrong[19][0]["items"][33]["price"] = -1000  # type: ignore[index]
    for number, (record, *_) in wrong.items():
        records[number] = record
    with RecordScene(kafka, tmp_path, settings, guarantee=guarantee, model=roots(), partitions=2) as scene:
        scene.replica()
        places = scene.publish_in_order([sent(record, b"key-%d" % (at % 5)) for at, record in enumerate(records)])

        answers = scene.by_source()

        for number, (position, record) in enumerate(zip(places, records, strict=True)):
            if number in wrong:
                expect_error(answers[position], *wrong[number][1:])
                continue
            x = np.array([[item["price"], item["count"]] for item in record["items"]], np.float32)  # type: ignore[attr-defined]
            expect_answer(answers[position], {"id": number, "root": np.sqrt(x.sum(1)).tolist()})
        scene.expect_kept()


def test_wrong_records_are_kept_as_they_came_and_answered_once_the_mapping_is_mended(
    kafka: Cluster, tmp_path: Path
) -> None:
    """The mapping demands a field that old producers leave out: with a default the replay answers all."""
    with RecordScene(kafka, tmp_path, partitions=1) as scene:
        stage = Stage(kafka)
        stage.dead, stage.requests = scene.dead_letter_topic, scene.topic
        old = [{name: value for name, value in payment(n).items() if name != "age"} for n in range(20)]
        with scene.replica() as strict:
            places = scene.publish_in_order(
                [sent(record, b"k%d" % n, source_system="s") for n, record in enumerate(old)]
            )
            answers = scene.by_source()
            scene.expect_kept()
            letters = scene.dead_letters(20)
            strict.terminate()
            assert strict.exit_code() == 0
        for n, letter in enumerate(letters):
            assert (letter.key, letter.value) == (b"k%d" % n, as_json(old[n]))
            assert dict(letter.headers)["source-system"] == b"s"
        assert len(answers) == 20
        inputs = {**MAPPING["inputs"], "features": ["amount", {"field": "age", "default": 3}, "customer.score"]}
        scene.settings |= settings_of(inputs=inputs)
        scene.replica()

        stage.run("replay")

        again = [answer(read) for read in kafka.read(scene.response_topic, 40)[20:]]
        for n, found in enumerate(again):
            expect_answer(found, right_answer({**old[n], "age": 3}))
            assert found.headers["request-id"] == str(places[n])


@quick_exactly_once
def test_deletes_and_tombstones_of_debezium_are_passed_over(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """The rows that were there after a change are answered, and an envelope of something else is an error."""
    settings = {**settings_of(**MAPPING, envelope="payload.after"), "KAFKA__NULL_VALUE": "skip"}
    with RecordScene(
        kafka,
        tmp_path,
        settings,
        guarantee=guarantee,
        partitions=1,
        is_owed=lambda asked: asked.value is not None and b'"after": null' not in asked.value,
    ) as scene:
        replica = scene.replica()
        records = []
        for n in range(60):
            row, key = payment(n), b"k%d" % n
            records += [
                sent({"schema": {"type": "struct"}, "payload": {"before": None, "after": row, "op": "c"}}, key),
                sent({"schema": None, "payload": {"before": row, "after": None, "op": "d"}}, key),
                Sent(key, None),
            ]
        places = scene.publish_in_order([*records, wrong := sent({"payload": {"op": "m"}})])

        answers = scene.by_source()

        for n in range(60):
            expect_answer(answers[places[3 * n]], right_answer(payment(n)))
        expect_error(answers[places[-1]], "INVALID_ARGUMENT", "payload.after")
        assert is_one_of(wrong, scene)
        scene.expect_kept()
        replica.wait_until_counted("inference_worker_records_passed_over_total", 120)


def is_one_of(asked: Sent, scene: RecordScene) -> bool:
    return any(asked is each for each in scene.acknowledged.values())


@quick_exactly_once
def test_a_topic_of_other_kinds_is_passed_over_and_committed(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """A new group begins with thousands of records that are not ours: nothing is answered, nor taken for wrong."""
    settings = settings_of(**MAPPING, only={"kind": ["payment"]})
    with RecordScene(
        kafka,
        tmp_path,
        settings,
        guarantee=guarantee,
        partitions=2,
        is_owed=lambda asked: b"payment" in asked.value,  # type: ignore[operator]  # all have values
    ) as scene:
        others = [sent({"kind": "refund", "n": n}, b"k%d" % n) for n in range(3000)]
        kafka.produce(scene.topic, others)
        replica = scene.replica()

        scene.expect_all_committed()
        replica.wait_until_counted("inference_worker_records_passed_over_total", 3000)
        places = scene.publish_in_order(
            [sent(payment(n, kind="payment" if n % 2 else "refund"), b"k%d" % n) for n in range(400)]
        )
        answers = scene.by_source()

        assert len(answers) == 200
        for n in range(1, 400, 2):
            expect_answer(answers[places[n]], right_answer(payment(n)))
        scene.expect_kept()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["key", "none"])
def test_every_order_that_can_be_chosen_holds_for_records(kafka: Cluster, tmp_path: Path, order: str) -> None:
    """A host dies under load, and wrong records are among the right ones."""
    settings = {**settings_of(**MAPPING), "DELIVERY__ORDER": order, "BATCHING__LANES": "2"}
    with RecordScene(kafka, tmp_path, settings) as scene:
        replica = scene.replica()

        def make(number: int) -> tuple[str, Sent]:
            wrong = {"amount": "much"} if number % 20 == 3 else {}
            return scene.topic, sent(payment(number, **wrong), b"key-%d" % (number % KEYS))

        with scene.publishing(800, make) as load:
            scene.wait_for_progress(50)
            replica.kill_host()
            scene.wait_for_progress(50)
            load.stop()

        scene.expect_kept()
        answers = scene.by_source()
        for position, asked in scene.acknowledged.items():
            record = json.loads(asked.value or b"")
            if record["amount"] == "much":
                expect_error(answers[position], "INVALID_ARGUMENT", "amount: expected a number")
            else:
                expect_answer(answers[position], right_answer(record))


@quick_exactly_once
def test_rows_of_a_record_are_steps_of_its_key_s_state(kafka: Cluster, tmp_path: Path, guarantee: str) -> None:
    """Records have up to forty steps, more than a batch has rows, and the replica is killed once."""
    network = gru(STEP, HIDDEN)
    of_steps = {"rows": "steps", "inputs": {"x": "steps[*].x"}, "answer": {"keep": ["id"], "y": "y"}}
    settings = {**settings_of(**of_steps), **STATE, "BATCHING__MAX_BATCH_SIZE": "16"}

    def make(number: int) -> tuple[str, Sent]:
        given = [{"x": steps(number * 40 + at).tolist()} for at in range(number % 40 + 1)]
        return scene.topic, sent({"id": number, "steps": given}, b"key-%d" % (number % 29))

    with RecordScene(kafka, tmp_path, settings, guarantee=guarantee, model=network) as scene:
        changelog = kafka.create_topic("states", partitions=4, config={"cleanup.policy": "compact"})
        scene.settings |= {"KAFKA__CHANGELOG_TOPIC": changelog, "DELIVERY__GUARANTEE": guarantee}
        replica = scene.replica()
        with scene.publishing(150, make) as load:
            scene.wait_for_progress(20)
            replica.kill()
            scene.replica()
            scene.wait_for_progress(20)
            load.stop()

        scene.expect_kept(repeats=20_000)
        answers = scene.by_source()
        serial = Serial(network, {"h_in": "h_out"}, "y", "<f4")
        for position, asked in sorted(scene.acknowledged.items(), key=lambda item: item[0]):
            given = np.array([each["x"] for each in json.loads(asked.value or b"")["steps"]], np.float32)
            y = json.loads(answers[position].value or b"")["y"]
            np.testing.assert_allclose(y, serial.run(asked.key or b"", given.tobytes()), 1e-4, 1e-4)
