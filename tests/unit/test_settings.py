"""The settings: where each is read from, and how each mistake is reported."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest

import worker
from worker.commands.orders import RunOrder
from worker.core.failures import BadConfiguration
from worker.core.tensors.buckets import WantedAxis
from worker.settings import Settings, load
from worker.settings.for_commands import load_client, load_scoring
from worker.settings.names import as_variables
from worker.settings.sections import SECTIONS, variable

LEAST = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "group",
    "WORKER_MODEL__PATH": "/models/digits.onnx",
}


def loaded(**kafka: str) -> Settings:
    """The minimum that starts a worker, with these further KAFKA keys."""
    return load(None, LEAST | {variable("kafka", key): value for key, value in kafka.items()})


def refused(environ: dict[str, str], config: Path | None = None) -> list[str]:
    """The lines that refuse these settings, added to the minimum that starts a worker."""
    with pytest.raises(BadConfiguration) as refusal:
        load(config, LEAST | environ)
    return str(refusal.value).splitlines()


def test_the_least_that_starts_gets_the_documented_defaults() -> None:
    """Five variables start a worker; everything else has a default."""
    settings = loaded()

    assert settings.kafka.request_topics == ("requests",)
    assert settings.model.name == "digits"
    assert settings.batching.max_batch_size == 32
    assert settings.delivery.guarantee == "at_least_once"
    assert settings.telemetry.http_address == "127.0.0.1"


def test_a_linger_is_milliseconds_or_learned(tmp_path: Path) -> None:
    """This holds for the environment and for a file. Inside, time is in seconds."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nlinger_ms = "auto"\nlatency_budget_ms = 50\n')

    learned, fixed = load(config, LEAST).batching, load(None, LEAST | {"WORKER_BATCHING__LINGER_MS": "2.5"}).batching

    assert (learned.linger, learned.latency_budget) == (None, 0.05)
    assert (fixed.linger, fixed.latency_budget) == (0.0025, inf)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """A variable overrides its key of the file; the file's other keys stay."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nmax_batch_size = 8\nlinger_ms = 2\n[kafka]\nrequest_topics = ["a", "b"]\n')
    environ = {k: v for k, v in LEAST.items() if "TOPICS" not in k} | {"WORKER_BATCHING__MAX_BATCH_SIZE": "64"}

    settings = load(config, environ)

    assert settings.batching.max_batch_size == 64
    assert settings.batching.linger_ms == 2
    assert settings.kafka.request_topics == ("a", "b")


def test_an_empty_variable_counts_as_not_set() -> None:
    """`${NAME:-}` in a compose file leaves an empty variable."""
    assert loaded(dead_letter_topic="").kafka.dead_letter_topic is None


def test_a_path_in_a_file_is_relative_to_the_file(tmp_path: Path) -> None:
    """The working directory does not matter for it; a variable's path is relative to the working directory."""
    config = tmp_path / "worker.toml"
    config.write_text(
        '[kafka]\nsecurity_protocol = "SSL"\nssl_ca_location = "ca.pem"\n[model]\npath = "digits.onnx"\n'
        '[state]\ntensors = {h = "h"}\ninitial = -inf\ndirectory = "/states"\n'
    )
    (tmp_path / "ca.pem").touch()
    without_model = {name: value for name, value in LEAST.items() if "MODEL" not in name}

    settings = load(config, without_model)

    assert (settings.model.path, settings.model.name) == (tmp_path / "digits.onnx", "digits")
    assert settings.kafka.ssl_ca_location == tmp_path / "ca.pem"
    assert (settings.state.initial, settings.state.directory) == (-inf, Path("/states"))
    assert load(config, LEAST | {"WORKER_MODEL__PATH": "here.onnx"}).model.path == Path("here.onnx")


def test_padded_axes_are_a_json_object_or_a_table(tmp_path: Path) -> None:
    """An input has one axis, or a list of them."""
    file = tmp_path / "worker.toml"
    file.write_text("[batching.buckets.ids]\naxis = 1\nboundaries = [4, 8]\npad = 1\n")
    two = '{"image": [{"axis": 2, "boundaries": [4]}, {"axis": 3, "boundaries": [8], "shared_by": {"depth": 0.5}}]}'

    from_file = load(file, LEAST).batching.wanted_axes
    from_environment = load(None, LEAST | {"WORKER_BATCHING__BUCKETS": two}).batching.wanted_axes

    assert from_file == (WantedAxis("ids", 1, (4, 8), 1),)
    assert from_environment == (WantedAxis("image", 2, (4,)), WantedAxis("image", 3, (8,), None, {"depth": 0.5}))


def test_passed_through_keys_become_text(tmp_path: Path) -> None:
    """librdkafka reads text; a TOML file may write its dotted keys as tables."""
    config = tmp_path / "worker.toml"
    config.write_text("[kafka.config]\nlinger.ms = 1\nsocket.keepalive.enable = true\n")

    from_file = load(config, LEAST).kafka.config
    from_environment = loaded(config='{"linger.ms": 1, "socket.keepalive.enable": true}').kafka.config

    assert from_file == from_environment == {"linger.ms": "1", "socket.keepalive.enable": "true"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_SERVICE_HOST", "10.0.0.11"),
        ("WORKER_SERVICE_PORT_HTTP", "9090"),
        ("WORKER_PORT", "tcp://10.0.0.11:9090"),
        ("WORKER_METRICS_PORT_9090_UDP_ADDR", "fd00::5"),
        ("WORKER_KAFKA_PORT", "tcp://10.0.0.11:9092"),
        ("WORKER_NAME", "/inference/worker"),
        ("WORKER_ENV_PATH", "/usr/bin"),
        ("worker_id", "7"),  # a user's script
        ("INFERENCE_WORKER_KAFKA__GROUP_ID", "x"),
        ("WORKER_TEST_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),  # our own tests
        ("WORKER_MAX_BATCH_SIZE", ""),
    ],
)
def test_names_that_are_not_ours_are_ignored(name: str, value: str) -> None:
    """Kubernetes sets variables for services called worker, worker-metrics, …; Docker's `--link` for a container."""
    assert load(None, LEAST | {name: value}) == loaded()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("WORKER_KAFKA__GROUPID", "WORKER_KAFKA__GROUP_ID"),
        ("WORKER_KAFKA_GROUP_ID", "WORKER_KAFKA__GROUP_ID"),
        ("worker_kafka__group_id", "WORKER_KAFKA__GROUP_ID"),
        ("WORKER_MAX_BATCH_SIZE", "WORKER_BATCHING__MAX_BATCH_SIZE"),
        ("WORKER_BATCHIN__LINGER_MS", "WORKER_BATCHING__LINGER_MS"),
        ("WORKER_KAFKA__REQUEST_TOPIC", "WORKER_KAFKA__REQUEST_TOPICS"),
        ("WORKER_KAFKA_SASL_PASSWORD_FILE", "WORKER_KAFKA__SASL_PASSWORD_FILE"),
    ],
)
def test_a_mistyped_name_is_an_error_that_guesses_the_right_one(name: str, meant: str) -> None:
    """A typo never silently becomes a default."""
    assert refused({name: "x"}) == [f"{name}: no such setting; did you mean {meant}?"]
    assert refused({"WORKER_NONE__OF": "x"})[0].startswith(
        "WORKER_NONE__OF: no such setting; settings are WORKER_<SECT"
    )


def test_a_mistyped_name_in_the_file_is_an_error_too(tmp_path: Path) -> None:
    """Cases: a wrong key, a table in capitals, and a stray value."""
    config = tmp_path / "worker.toml"
    config.write_text("stray = 1\n[batching]\nlinger = 2\n[BATCHING]\nlanes = 2\n[kafka]\nfetch-min-bytes = 5\n")
    tables = "tables are kafka, model, batching, delivery, state, telemetry, records, registry"
    own = "and librdkafka's own keys stand in [kafka.config]"

    assert refused({}, config) == [
        f"stray in {config}: no such table; {tables}",
        f"batching.linger in {config}: no such setting; did you mean batching.linger_ms?",
        f"BATCHING.lanes in {config}: no such setting; did you mean batching.lanes?",
        f"kafka.fetch-min-bytes in {config}: no such setting; {tables}, {own}",
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"[kafka", "cannot be read: it is not TOML: "),
        (b"\xff", "cannot be read: it is not TOML: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    """Cases: absent, malformed, and not text."""
    config = tmp_path / "worker.toml"
    if content is not None:
        config.write_bytes(content)

    [line] = refused({}, config)

    assert line.startswith(f"--config {config}: {why}")


def test_all_problems_are_told_at_once_each_on_its_line() -> None:
    """An operator can fix all of them at once."""
    with pytest.raises(BadConfiguration) as refusal:
        load(None, {"WORKER_BATCHING__LANES": "many", "WORKER_KAFKA__GROUPID": "g"})

    names = [line.partition(":")[0] for line in str(refusal.value).splitlines()]
    assert names == [
        "WORKER_KAFKA__GROUPID",
        "WORKER_KAFKA__BOOTSTRAP_SERVERS",
        "WORKER_KAFKA__REQUEST_TOPICS",
        "WORKER_KAFKA__RESPONSE_TOPIC",
        "WORKER_KAFKA__GROUP_ID",
        "WORKER_MODEL__PATH",
        "WORKER_BATCHING__LANES",
        "no settings file was read",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKER_BATCHING__MAX_BATCH_SIZE", "0"),
        ("WORKER_BATCHING__LINGER_MS", "nan"),
        ("WORKER_BATCHING__LINGER_MS", "-1"),
        ("WORKER_BATCHING__LINGER_MS", "automatic"),
        ("WORKER_BATCHING__LATENCY_BUDGET_MS", "0"),
        ("WORKER_KAFKA__REQUEST_TOPICS", "^all.*"),
        ("WORKER_KAFKA__REQUEST_TOPICS", ","),
        ("WORKER_KAFKA__CONFIG", "[1]"),
        ("WORKER_KAFKA__CONFIG", "{"),
        ("WORKER_MODEL__DEVICE", "gpu"),
        *(
            ("WORKER_MODEL__INPUT_DEFAULTS", value)
            for value in ("[1]", "{", '{"a": null}', '{"a": [1]}', "[" * 100_000)
        ),
        ("WORKER_MODEL__WARM_UP_ROWS", "4"),
        ("WORKER_MODEL__SHA256", "abc"),
        ("WORKER_TELEMETRY__HTTP_PORT", "65536"),
        ("WORKER_DELIVERY__TRANSACTIONAL_ID", "{pod}"),
        ("WORKER_DELIVERY__TRANSACTIONAL_ID", "worker-{hostname"),
        ("WORKER_KAFKA__GROUP_INSTANCE_ID", "worker-{ordinal}"),
        ("WORKER_DELIVERY__TRANSACTIONAL_ID", " "),
        ("WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS", "999"),
        ("WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS", "900001"),
    ],
)
def test_a_value_out_of_bounds_is_refused(name: str, value: str) -> None:
    """The refusal is one line that begins with the variable's name."""
    [line] = refused({name: value})

    assert line.startswith(f"{name}: ")


SASL = {
    "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "WORKER_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
    "WORKER_KAFKA__SASL_USERNAME": "worker",
}
PASSWORD = "WORKER_KAFKA__SASL_PASSWORD"  # noqa: S105 - a variable's name


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    """A newline at the end, which editors add, is no part of it. A file that cannot be read is named."""
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_bytes(b"\n")

    kafka = load(None, LEAST | SASL | {f"{PASSWORD}_FILE": str(tmp_path / "password")}).kafka
    twice = refused(SASL | {PASSWORD: "s3cret", f"{PASSWORD}_FILE": str(tmp_path)})
    absent, binary, empty, misplaced = (
        refused(SASL | {f"{PASSWORD}_FILE": name})[0]
        for name in (*(str(tmp_path / name) for name in ("absent", "binary", "empty")), "s3cret")
    )

    assert kafka.sasl_password is not None
    assert kafka.sasl_password.get_secret_value() == "s3cret"
    assert twice == [f"{PASSWORD}_FILE: {PASSWORD} is set as well; unset one of them"]
    assert absent == f"{PASSWORD}_FILE: cannot read {tmp_path / 'absent'}: No such file or directory"
    assert binary == f"{PASSWORD}_FILE: cannot read {tmp_path / 'binary'}: it is not UTF-8 text"
    assert empty == f"{PASSWORD}_FILE: {tmp_path / 'empty'} is empty"
    assert "s3cret" not in misplaced


def test_no_message_and_no_repr_shows_a_secret(tmp_path: Path) -> None:
    """A good value's repr and a bad value's error do not show a secret or the value of a passed-through key."""
    config = tmp_path / "worker.toml"
    config.write_text("[kafka]\nsasl_password = 12345678\n")

    bad = [*refused({}, config), *refused({"WORKER_KAFKA__CONFIG": '{"ssl.key.pem": "12345678", oops}'})]
    bad += refused({"WORKER_KAFKA__BOOTSTRAP_SERVERS": "me:12345678@kafka:9092"})
    good = load(None, LEAST | SASL | {PASSWORD: "12345678", "WORKER_KAFKA__CONFIG": '{"ssl.key.pem": "12345678"}'})

    assert all("12345678" not in line for line in bad)
    assert bad[-1].startswith("WORKER_KAFKA__BOOTSTRAP_SERVERS: a broker's address has no login in it; write host:port")
    assert "12345678" not in repr(good)
    assert "12345678" not in str(good)


def test_paths_inside_the_tables_of_records_are_relative_to_the_file(tmp_path: Path) -> None:
    """As those of other settings: the tokenizer's, the functions', and that of the names of an answer."""
    config = tmp_path / "worker.toml"
    config.write_text(
        '[records]\nfunctions = "f.py"\n[records.text]\nfield = "body"\ntokenizer = "t.json"\n'
        '[records.answer]\nlabel = { argmax = "y", names = "labels.txt" }\nscore = "y"\n'
    )
    records = load(config, LEAST).records

    assert records is not None
    assert (records.functions, records.text.tokenizer) == (tmp_path / "f.py", tmp_path / "t.json")
    assert records.answer == {"label": {"argmax": "y", "names": str(tmp_path / "labels.txt")}, "score": "y"}


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads would be an empty promise."""
    package = Path(worker.__file__).parent
    declaring = {package / "settings" / name for name in ("sections.py", "kafka_sections.py", "loading.py")}
    sources = [path for path in package.rglob("*.py") if path not in declaring]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)

    unread = [key for cls in SECTIONS.values() for key in cls.model_fields if not re.search(rf'[."]{key}\b', code)]

    assert unread == []


def test_a_publisher_or_reader_needs_the_brokers_alone() -> None:
    """A worker's other variables may be set, too, and topics may be absent. All names are checked."""
    brokers = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092"}

    assert load_client(None, brokers).kafka.request_topics is None
    assert load_client(None, LEAST).kafka.request_topics == ("requests",)
    with pytest.raises(BadConfiguration, match="did you mean WORKER_KAFKA__GROUP_ID"):
        load_client(None, brokers | {"WORKER_KAFKA__GRUOP_ID": "x"})
    with pytest.raises(BadConfiguration, match="unencrypted"):
        load_client(None, {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "kafka.example:9092"})


def test_scoring_needs_the_model_alone(tmp_path: Path) -> None:
    """It needs no broker; bounds are checked as for a worker."""
    config = tmp_path / "worker.toml"
    config.write_text('[kafka]\ngroup_id = "g"\n[batching]\nmax_batch_size = 8\n')
    model = {"WORKER_MODEL__PATH": "/models/digits.onnx"}

    assert load_scoring(config, model).batching.max_batch_size == 8
    with pytest.raises(BadConfiguration, match="WORKER_MODEL__PATH: must be set"):
        load_scoring(config, {})
    with pytest.raises(BadConfiguration, match="MAX_INFLIGHT_BYTES: must hold 11 batches"):
        load_scoring(None, model | {"WORKER_BATCHING__LANES": "9"})


# From the command line


def test_options_win_over_the_environment_and_the_file(tmp_path: Path) -> None:
    """Each option replaces its own setting; other settings stay."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nmax_batch_size = 8\nlanes = 2\n[kafka]\nresponse_topic = "file"\n')
    environ = LEAST | {"WORKER_BATCHING__MAX_BATCH_SIZE": "16"}
    order = RunOrder(
        requests="a,b",
        dead_letters="rejected",
        model=Path("/models/another.onnx"),
        assignments=["BATCHING__MAX_BATCH_SIZE=64"],
        config=config,
    )

    settings = load(order.config, order.over(environ))

    assert settings.kafka.request_topics == ("a", "b")
    assert settings.kafka.dead_letter_topic == "rejected"
    assert settings.kafka.response_topic == LEAST["WORKER_KAFKA__RESPONSE_TOPIC"]
    assert settings.model.name == "another"
    assert (settings.batching.max_batch_size, settings.batching.lanes) == (64, 2)


@pytest.mark.parametrize("key", ["BATCHING__LINGER_MS", "WORKER_BATCHING__LINGER_MS", "batching.linger_ms"])
def test_a_key_is_spelled_as_in_the_environment_or_in_the_file(key: str) -> None:
    """A value may contain the character that separates it from the key."""
    assert as_variables([f"{key}=5=5"]) == {"WORKER_BATCHING__LINGER_MS": "5=5"}


def test_every_assignment_that_is_none_is_told_at_once() -> None:
    """The line says where a secret belongs, or what is missing. No value is repeated."""
    name = "WORKER_KAFKA__SASL_PASSWORD"
    why = f"every user of this machine can read a command line; set {name} or {name}_FILE in the environment"

    with pytest.raises(BadConfiguration) as refusal:
        as_variables(["KAFKA__SASL_PASSWORD=hunter2", "BATCHING__LANES"])

    assert str(refusal.value).splitlines() == [
        f"--set KAFKA__SASL_PASSWORD: {why}",
        "--set BATCHING__LANES: has no value; write --set BATCHING__LANES=VALUE",
    ]
