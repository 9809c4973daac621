"""The settings: what is read from where, and how each mistake is reported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path

import pytest

import worker
from worker.core.failures import BadConfiguration
from worker.core.tensors.buckets import WantedAxis
from worker.settings import Settings, load, names
from worker.settings.__main__ import reference, with_reference
from worker.settings.effective import effective
from worker.settings.for_commands import load_client, load_scoring
from worker.settings.sections import SECTIONS, variable

LEAST = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "group",
    "WORKER_MODEL__PATH": "/models/digits.onnx",
}


def loaded(**kafka: str) -> Settings:
    """The least that starts, and so many more KAFKA keys."""
    return load(None, LEAST | {variable("kafka", key): value for key, value in kafka.items()})


def refused(environ: dict[str, str], config: Path | None = None) -> list[str]:
    """The lines with which these settings are refused, on top of the least that starts."""
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
    """In the environment and in a file alike. Inside, time is seconds."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nlinger_ms = "auto"\nlatency_budget_ms = 50\n')

    learned, fixed = load(config, LEAST).batching, load(None, LEAST | {"WORKER_BATCHING__LINGER_MS": "2.5"}).batching

    assert (learned.linger, learned.latency_budget) == (None, 0.05)
    assert (fixed.linger, fixed.latency_budget) == (0.0025, inf)


def test_settings_are_frozen() -> None:
    """No setting changes after the start."""
    settings = loaded()

    with pytest.raises(ValueError, match="frozen"):
        settings.kafka.group_id = "another"  # type: ignore[misc]  # the point of the test


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """A variable overrides the same key of the file; the file's other keys stay."""
    config = tmp_path / "worker.toml"
    config.write_text('[batching]\nmax_batch_size = 8\nlinger_ms = 2\n[kafka]\nrequest_topics = ["a", "b"]\n')
    environ = {k: v for k, v in LEAST.items() if "TOPICS" not in k} | {"WORKER_BATCHING__MAX_BATCH_SIZE": "64"}

    settings = load(config, environ)

    assert settings.batching.max_batch_size == 64
    assert settings.batching.linger_ms == 2
    assert settings.kafka.request_topics == ("a", "b")


def test_the_environment_is_the_one_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process happens to run with is not looked at."""
    monkeypatch.setenv("WORKER_BATCHING__LANES", "2")
    monkeypatch.setenv("WORKER_KAFKA", "{}")

    assert loaded().batching.lanes == 1


def test_one_batch_more_is_under_way_than_there_are_lanes() -> None:
    """It is stacked ahead. What is set is taken as it is."""
    lanes, batches = variable("batching", "lanes"), variable("batching", "max_inflight_batches")

    assert load(None, LEAST).batching.max_inflight_batches == 2
    assert load(None, LEAST | {lanes: "2"}).batching.max_inflight_batches == 3
    assert load(None, LEAST | {lanes: "2", batches: "2"}).batching.max_inflight_batches == 2


def test_lists_are_comma_separated_in_the_environment() -> None:
    """Blanks around the commas do not count."""
    assert loaded(request_topics="a, b ,c").kafka.request_topics == ("a", "b", "c")


def test_an_empty_variable_counts_as_not_set() -> None:
    """`${NAME:-}` in a compose file leaves an empty variable behind."""
    assert loaded(dead_letter_topic="").kafka.dead_letter_topic is None


def test_padded_axes_are_a_json_object_or_a_table(tmp_path: Path) -> None:
    """One axis of an input, or a list of them."""
    file = tmp_path / "worker.toml"
    file.write_text("[batching.buckets.ids]\naxis = 1\nboundaries = [4, 8]\npad = 1\n")
    two = '{"image": [{"axis": 2, "boundaries": [4]}, {"axis": 3, "boundaries": [8], "shared_by": {"depth": 0.5}}]}'

    from_file = load(file, LEAST).batching.wanted_axes
    from_environment = load(None, LEAST | {"WORKER_BATCHING__BUCKETS": two}).batching.wanted_axes

    assert from_file == (WantedAxis("ids", 1, (4, 8), 1),)
    assert from_environment == (WantedAxis("image", 2, (4,)), WantedAxis("image", 3, (8,), None, {"depth": 0.5}))


@pytest.mark.parametrize(
    ("buckets", "wrong"),
    [
        ("ids", "must be a JSON object"),
        ('{"ids": 5}', "ids.0: input should be a valid dictionary"),
        ('{"ids": {"axis": 1}}', "ids.0.boundaries: must be set"),
        ('{"ids": {"axis": 0, "boundaries": [4]}}', "ids.0.axis: input should be greater than or equal to 1, got 0"),
        (
            '{"ids": {"axis": 1, "boundaries": [8, 4]}}',
            "ids.0.boundaries: must be ascending, each length once, got [8, 4]",
        ),
        ('{"ids": {"axis": 1, "boundaries": [4], "pads": 1}}', "ids.0.pads: extra inputs are not permitted"),
    ],
)
def test_padded_axes_that_are_none_are_told_with_their_place(buckets: str, wrong: str) -> None:
    """The variable, and where in it."""
    with pytest.raises(BadConfiguration) as refusal:
        load(None, LEAST | {"WORKER_BATCHING__BUCKETS": buckets})

    assert f"WORKER_BATCHING__BUCKETS: {wrong}" in str(refusal.value)


def test_passed_through_keys_become_text(tmp_path: Path) -> None:
    """librdkafka reads text; a TOML file may spell its dotted keys as tables."""
    config = tmp_path / "worker.toml"
    config.write_text("[kafka.config]\nlinger.ms = 1\nsocket.keepalive.enable = true\n")

    from_file = load(config, LEAST).kafka.config
    from_environment = loaded(config='{"linger.ms": 1, "socket.keepalive.enable": true}').kafka.config

    assert from_file == from_environment == {"linger.ms": "1", "socket.keepalive.enable": "true"}


def test_defaults_of_inputs_keep_their_kind(tmp_path: Path) -> None:
    """One is no truth value and no text. In TOML a name with a dot is a table."""
    config = tmp_path / "worker.toml"
    config.write_text('[model.input_defaults]\nmask = 1\nis_new = true\nencoder.scale = 0.5\nlang = "en"\n')
    said = '{"mask": 1, "is_new": true, "encoder.scale": 0.5, "lang": "en", "odd": NaN}'

    in_file = load(config, LEAST).model.input_defaults
    in_environment = load(
        None, {**LEAST, "WORKER_MODEL__INPUT_DEFAULTS": said, "WORKER_MODEL__NON_FINITE_INPUT": "allow"}
    ).model.input_defaults

    assert repr(in_file) == "{'mask': 1, 'is_new': True, 'encoder.scale': 0.5, 'lang': 'en'}"
    assert repr(in_environment) == repr(in_file)[:-1] + ", 'odd': nan}"


@pytest.mark.parametrize("value", ["[1]", "1", "{", '{"a": null}', '{"a": [1]}', "[" * 100_000])
def test_defaults_of_inputs_are_one_value_each(value: str) -> None:
    """Reported in one line, whatever kinds it might have been."""
    [line] = refused({"WORKER_MODEL__INPUT_DEFAULTS": value})

    assert line.startswith("WORKER_MODEL__INPUT_DEFAULTS: must be a JSON object with one value for each input, for")


INJECTED = {
    "WORKER_SERVICE_HOST": "10.0.0.11",
    "WORKER_SERVICE_PORT": "9090",
    "WORKER_SERVICE_PORT_HTTP": "9090",
    "WORKER_SERVICE_PORT__9090_TCP": "9090",  # a port whose name begins with a digit
    "WORKER_PORT": "tcp://10.0.0.11:9090",
    "WORKER_PORT_9090_TCP": "tcp://10.0.0.11:9090",
    "WORKER_PORT_9090_TCP_PROTO": "tcp",
    "WORKER_PORT_9090_TCP_PORT": "9090",
    "WORKER_PORT_9090_TCP_ADDR": "10.0.0.11",
    "WORKER_METRICS_SERVICE_HOST": "10.0.0.12",
    "WORKER_METRICS_PORT": "udp://[fd00::5]:9090",
    "WORKER_METRICS_PORT_9090_UDP_ADDR": "fd00::5",
    "WORKER_KAFKA_PORT": "tcp://10.0.0.11:9092",
    "WORKER_TELEMETRY_HTTP_PORT": "tcp://10.0.0.11:80",  # a service called worker-telemetry-http
    "WORKER__KAFKA_SERVICE_HOST": "10.0.0.11",  # one called worker--kafka
    "WORKER_NAME": "/inference/worker",
    "WORKER_ENV_PATH": "/usr/bin",
    "WORKER_PORT_9090_TCP_START": "tcp://172.17.0.2:9090",
}


@pytest.mark.parametrize(("name", "value"), INJECTED.items())
def test_what_a_platform_injects_is_ignored(name: str, value: str) -> None:
    """Kubernetes tells of services called worker, worker-metrics, …; Docker's `--link` of a container."""
    assert load(None, LEAST | {name: value}) == loaded()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WORKERS__X", "x"),
        ("INFERENCE_WORKER_KAFKA__GROUP_ID", "x"),
        ("PATH", "/bin"),
        ("worker_id", "7"),  # of a script of the user's
        ("WORKER_TEST_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),  # of our own tests
        ("WORKER_MAX_BATCH_SIZE", ""),
    ],
)
def test_names_that_are_not_ours_are_ignored(name: str, value: str) -> None:
    """Only `WORKER_*` is ours, and what is empty counts as not set."""
    assert load(None, LEAST | {name: value}) == loaded()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("WORKER_KAFKA__GROUPID", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("WORKER_BATCHIN__LINGER_MS", "did you mean WORKER_BATCHING__LINGER_MS?"),
        ("WORKER_BATCHIN_LINGER_MS", "did you mean WORKER_BATCHING__LINGER_MS?"),
        ("WORKER_kafka__group_id", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("worker_kafka__group_id", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("worker_max_batch_size", "did you mean WORKER_BATCHING__MAX_BATCH_SIZE?"),
        ("WORKER_KAFKA__GROUP_ID__X", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("WORKER__KAFKA__GROUP_ID", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("WORKER_MAX_BATCH_SIZE", "did you mean WORKER_BATCHING__MAX_BATCH_SIZE?"),
        ("WORKER_LINGER_MS", "did you mean WORKER_BATCHING__LINGER_MS?"),
        ("WORKER_GROUP_ID", "did you mean WORKER_KAFKA__GROUP_ID?"),
        ("WORKER_BATCHING_MAX_BATCH_SIZE", "did you mean WORKER_BATCHING__MAX_BATCH_SIZE, with two underscores?"),
        ("WORKER_KAFKA_GROUP_ID", "did you mean WORKER_KAFKA__GROUP_ID, with two underscores?"),
        ("WORKER_TELEMETRY_HTTP_PORT", "did you mean WORKER_TELEMETRY__HTTP_PORT, with two underscores?"),
        ("WORKER_SASL_PASSWORD_FILE", "did you mean WORKER_KAFKA__SASL_PASSWORD_FILE?"),
        ("WORKER_KAFKA__BOOTSTRAP_SERVER", "did you mean WORKER_KAFKA__BOOTSTRAP_SERVERS?"),
        ("WORKER_KAFKA__REQUEST_TOPIC", "did you mean WORKER_KAFKA__REQUEST_TOPICS?"),
        ("WORKER_KAFKA__BROKERS", "did you mean WORKER_KAFKA__BOOTSTRAP_SERVERS?"),
        ("WORKER_BATCHING__MAX_QUEUE_DELAY_MICROSECONDS", "did you mean WORKER_BATCHING__LINGER_MS?"),
        ("WORKER_DELIVERY__DRAIN_TIMEOUT", "did you mean WORKER_DELIVERY__DRAIN_TIMEOUT_S?"),
        ("WORKER_MODEL__GPU_MEMORY_LIMIT", "did you mean WORKER_MODEL__GPU_MEM_LIMIT?"),
        ("WORKER_DELIVERY__MAX_BATCH_SIZE", "did you mean WORKER_BATCHING__MAX_BATCH_SIZE?"),
        (
            "WORKER_MODEL__NUM_THREADS",
            "did you mean WORKER_MODEL__INTRA_OP_NUM_THREADS or WORKER_BATCHING__LANES?",
        ),
        (
            "WORKER_KAFKA__MAX_BATCH_SIZE",
            "did you mean WORKER_BATCHING__MAX_BATCH_SIZE? librdkafka's own settings stand in WORKER_KAFKA__CONFIG",
        ),
    ],
)
def test_a_mistyped_name_is_an_error_that_guesses_the_right_one(name: str, meant: str) -> None:
    """A typo never becomes a silent default."""
    assert refused({name: "x"}) == [f"{name}: no such setting; {meant}"]


@pytest.mark.parametrize(
    "name",
    [
        "WORKER_NONE__OF_THESE",
        "WORKER_BATCHING__MIN_BATCH_SIZE",
        "WORKER_BATCHING__MAX_INFLIGHT_TOKENS",
        "WORKER_MODEL__INTER_OP_NUM_THREADS",
    ],
)
def test_no_guess_is_better_than_a_wrong_one(name: str) -> None:
    """A name that says the opposite of a setting, or counts something else, is near to it by its letters only."""
    [line] = refused({name: "x"})

    assert line.startswith(f"{name}: no such setting; settings are WORKER_<SECTION>__<NAME>, sections KAFKA, MODEL, ")


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("WORKER_CONNECTIONS", "1024", "settings are WORKER_<SECTION>__<NAME>, sections KAFKA, "),
        ("WORKER_NAME", "worker-1", "did you mean WORKER_MODEL__NAME?"),
        ("WORKER_PORT", "9090", "did you mean WORKER_TELEMETRY__HTTP_PORT?"),
        ("WORKER_TIMEOUT", "30", "did you mean WORKER_BATCHING__TIMEOUT_MS or WORKER_DELIVERY__DRAIN_TIMEOUT_S?"),
    ],
)
def test_a_name_that_may_be_of_other_software_says_how_it_can_stay(name: str, value: str, meant: str) -> None:
    """One environment may serve several programs; an empty variable counts as not set."""
    [line] = refused({name: value})

    assert line.startswith(f"{name}: no such setting; {meant}")
    assert line.endswith(f" If other software reads it, empty it for this process: {name}=")


def test_a_key_of_librdkafka_in_the_section_is_shown_its_place() -> None:
    """It is no setting of ours, and can be set all the same."""
    [line] = refused({"WORKER_KAFKA__FETCH_MIN_BYTES": "1"})

    assert line.endswith("TELEMETRY. librdkafka's own settings stand in WORKER_KAFKA__CONFIG")


def slips(name: str) -> Iterator[str]:
    """A letter left out, two exchanged, one that is wrong; each third place of the key."""
    section, _, key = name.partition("__")
    for at in range(0, len(key), 3):
        before, letter, after = key[:at], key[at], key[at + 1 :]
        yield from (f"{section}__{before}{wrong}" for wrong in (after, f"{after[:1]}{letter}{after[1:]}", f"X{after}"))


def test_a_slip_of_one_letter_never_leads_to_another_setting() -> None:
    """Nearly all lead to the right one; the rest, in words of four letters, to none."""
    guesses = [(name, names.meant(slip)) for name in names.KNOWN for slip in slips(name) if slip not in names.KNOWN]

    assert all(name in guess for name, guess in guesses if guess)
    assert sum(bool(guess) for _, guess in guesses) > 0.9 * len(guesses) > 500


def test_every_name_that_others_use_is_of_a_setting() -> None:
    """What a guess names exists, and is not what was mistyped."""
    for setting, others in names._CALLED.items():
        assert f"WORKER_{setting}" in names.KNOWN
        assert all(f"WORKER_{setting}" in names.meant(f"WORKER_{other}") for other in others.split())


def test_a_mistyped_name_in_the_file_is_an_error_too(tmp_path: Path) -> None:
    """A wrong key, a wrong table, a table that shouts, and a stray value."""
    config = tmp_path / "worker.toml"
    config.write_text(
        "stray = 1\n[batching]\nlinger = 2\n[modle]\npath = 'x'\n[BATCHING]\nlanes = 2\n[empty]\n[kafka]\n"
    )

    assert refused({}, config) == [
        f"stray in {config}: no such setting; tables are kafka, model, batching, delivery, state, telemetry.",
        f"batching.linger in {config}: no such setting; did you mean batching.linger_ms?",
        f"modle.path in {config}: no such setting; did you mean model.path?",
        f"BATCHING.lanes in {config}: no such setting; did you mean batching.lanes?",
        f"empty in {config}: no such setting; tables are kafka, model, batching, delivery, state, telemetry.",
    ]


def test_true_is_no_number(tmp_path: Path) -> None:
    """In a file, where it would be 1; where a setting may be true it is."""
    config = tmp_path / "worker.toml"
    config.write_text(
        "[batching]\nmax_batch_size = true\nlinger_ms = false\ntimeout_ms = true\n[kafka]\nallow_plaintext = true\n"
    )

    assert [line.partition(". ")[0] for line in refused({}, config)] == [
        "WORKER_BATCHING__MAX_BATCH_SIZE: must be a number, got True",
        "WORKER_BATCHING__LINGER_MS: must be a number, got False",
        "WORKER_BATCHING__TIMEOUT_MS: must be a number, got True",
    ]


def test_a_key_in_the_wrong_place_of_the_file_is_shown_its_own(tmp_path: Path) -> None:
    """Without a table, in another one, by the variable's name, and what only a variable can say."""
    config = tmp_path / "worker.toml"
    config.write_text(
        "max_batch_size = 64\nWORKER_KAFKA__GROUP_ID = 'g'\n[kafka]\nlinger-ms = 5\nsasl_password_file = '/run/it'\n"
    )

    assert refused({}, config) == [
        f"max_batch_size in {config}: no such setting; did you mean batching.max_batch_size?",
        f"WORKER_KAFKA__GROUP_ID in {config}: no such setting; did you mean kafka.group_id?",
        (
            f"kafka.linger-ms in {config}: no such setting; did you mean batching.linger_ms? "
            "librdkafka's own settings stand in the table kafka.config"
        ),
        (
            f"kafka.sasl_password_file in {config}: no such setting; did you mean the variable "
            "WORKER_KAFKA__SASL_PASSWORD_FILE?"
        ),
    ]


def test_a_value_where_a_table_belongs_is_an_error(tmp_path: Path) -> None:
    """One that bears a section's name is told, and nothing else of that section."""
    config = tmp_path / "worker.toml"
    config.write_text("batching = 1\n")

    [line] = refused({}, config)

    assert line == f"batching in {config}: is a table, [batching], and no value"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no such file; `inference-worker init --model model.onnx --config "),
        (b"[kafka", "it is not TOML: "),
        (b"\xff", "it is no text, and TOML is"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    """Absent, malformed, and not text."""
    config = tmp_path / "worker.toml"
    if content is not None:
        config.write_bytes(content)

    [line] = refused({}, config)

    assert line.startswith(f"--config {config}: cannot be read: {why}")


def test_another_format_is_told_what_is_read_instead(tmp_path: Path) -> None:
    """By the file's name, with a line of TOML. One that holds TOML is read whatever it is called."""
    config = tmp_path / "worker.yaml"
    config.write_text("kafka:\n  group_id: digits\n")

    [line] = refused({}, config)

    assert line.startswith(f"--config {config}: is YAML by its name, and TOML is read: a line [kafka] and below it")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A mount that brought the folder for the file does not start a worker on defaults."""
    assert refused({}, tmp_path) == [f"--config {tmp_path}: cannot be read: it is a folder"]


def test_all_problems_are_told_at_once_each_on_its_line() -> None:
    """An operator fixes them in one go."""
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
    """One line, and it begins with the variable's name."""
    [line] = refused({name: value})

    assert line.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("gpu", "did you mean cuda? It must be auto, cpu, cuda or cuda:N, got 'gpu'."),
        ("GPU:1", "did you mean cuda:1? It must be"),
        ("cdua", "did you mean cuda? It must be"),
        ("rocm", "must be auto, cpu, cuda or cuda:N, got 'rocm'."),
    ],
)
def test_a_device_by_another_name_is_guessed(device: str, told: str) -> None:
    """A pattern does not say what to write."""
    [line] = refused({"WORKER_MODEL__DEVICE": device})

    assert line.startswith(f"WORKER_MODEL__DEVICE: {told}")


def test_choices_are_read_without_case() -> None:
    """`sasl_ssl` is what people write."""
    assert loaded(security_protocol="ssl").kafka.security_protocol == "SSL"


SASL = {
    "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "WORKER_KAFKA__SASL_MECHANISM": "SCRAM-SHA-512",
    "WORKER_KAFKA__SASL_USERNAME": "worker",
}
PASSWORD = "WORKER_KAFKA__SASL_PASSWORD"  # noqa: S105 - a variable's name


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    """The newline that an editor leaves at the end is no part of it."""
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")

    kafka = load(None, LEAST | SASL | {f"{PASSWORD}_FILE": str(secret)}).kafka

    assert kafka.sasl_password is not None
    assert kafka.sasl_password.get_secret_value() == "s3cret"


def test_a_secret_is_given_once(tmp_path: Path) -> None:
    """It need not be asked which of two wins."""
    lines = refused(SASL | {PASSWORD: "s3cret", f"{PASSWORD}_FILE": str(tmp_path)})

    assert lines == [f"{PASSWORD}_FILE: {PASSWORD} is set as well; unset one of them"]


def test_an_unreadable_secret_file_is_named(tmp_path: Path) -> None:
    """The file's name is shown; there is no content to show."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    [absent] = refused(SASL | {f"{PASSWORD}_FILE": str(tmp_path / "absent")})[:1]
    [binary] = refused(SASL | {f"{PASSWORD}_FILE": str(tmp_path / "binary")})[:1]
    (tmp_path / "empty").write_bytes(b"\n")
    [empty] = refused(SASL | {f"{PASSWORD}_FILE": str(tmp_path / "empty")})[:1]
    assert empty == f"{PASSWORD}_FILE: {tmp_path / 'empty'} is empty"

    assert absent == f"{PASSWORD}_FILE: cannot read {tmp_path / 'absent'}: No such file or directory"
    assert binary == f"{PASSWORD}_FILE: cannot read {tmp_path / 'binary'}: it is not UTF-8 text"


def test_a_secret_in_the_place_of_its_file_s_name_is_not_told() -> None:
    """The mistake is easily made, and the line goes to the log."""
    [line] = refused(SASL | {f"{PASSWORD}_FILE": "s3cret"})[:1]

    assert line == f"{PASSWORD}_FILE: cannot read the file that it names: No such file or directory"


def test_only_secrets_have_a_file_form() -> None:
    """`WORKER_KAFKA__GROUP_ID_FILE` is a mistake, not a feature."""
    [line] = refused({"WORKER_KAFKA__GROUP_ID_FILE": "/etc/hostname"})

    assert line.startswith("WORKER_KAFKA__GROUP_ID_FILE: no such setting")


def test_no_message_and_no_repr_shows_a_secret(tmp_path: Path) -> None:
    """Neither a good value's repr nor a bad value's error shows what a secret or a passed-through key holds."""
    config = tmp_path / "worker.toml"
    config.write_text("[kafka]\nsasl_password = 12345678\n")

    bad = [*refused({}, config), *refused({"WORKER_KAFKA__CONFIG": '{"ssl.key.pem": "12345678", oops}'})]
    bad += refused({"WORKER_KAFKA__BOOTSTRAP_SERVERS": "me:12345678@kafka:9092"})
    good = load(None, LEAST | SASL | {PASSWORD: "12345678", "WORKER_KAFKA__CONFIG": '{"ssl.key.pem": "12345678"}'})

    assert all("12345678" not in line for line in bad)
    assert bad[-1].startswith("WORKER_KAFKA__BOOTSTRAP_SERVERS: a broker's address has no login in it; write host:port")
    assert "12345678" not in repr(good)
    assert "12345678" not in str(good)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"KAFKA__REQUEST_TOPICS": "a,a"}, "WORKER_KAFKA__REQUEST_TOPICS: names a topic twice"),
        ({"KAFKA__RESPONSE_TOPIC": "requests"}, "WORKER_KAFKA__RESPONSE_TOPIC: is also a request topic"),
        ({"KAFKA__DEAD_LETTER_TOPIC": "requests"}, "WORKER_KAFKA__DEAD_LETTER_TOPIC: is also"),
        ({"KAFKA__DEAD_LETTER_TOPIC": "answers"}, "WORKER_KAFKA__DEAD_LETTER_TOPIC: is also"),
        ({"KAFKA__REPLY_TOPICS": "mine,requests"}, "WORKER_KAFKA__REPLY_TOPICS: requests is also another topic"),
        (
            {"KAFKA__GROUP_PROTOCOL": "consumer", "KAFKA__SESSION_TIMEOUT_MS": "6000"},
            "WORKER_KAFKA__SESSION_TIMEOUT_MS: the broker sets it",
        ),
        ({"KAFKA__BOOTSTRAP_SERVERS": "kafka:9092"}, "WORKER_KAFKA__SECURITY_PROTOCOL: PLAINTEXT to kafka:9092"),
        ({"KAFKA__BOOTSTRAP_SERVERS": "localhost:kafka"}, "WORKER_KAFKA__BOOTSTRAP_SERVERS: 'localhost:kafka' is no"),
        ({"KAFKA__BOOTSTRAP_SERVERS": "[::1]:65536"}, "WORKER_KAFKA__BOOTSTRAP_SERVERS: '[::1]:65536' is no broker"),
        *(
            ({"KAFKA__BOOTSTRAP_SERVERS": servers}, f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {told!r} is no broker")
            for servers, told in (
                ("localhost:1;localhost:2", "localhost:1;localhost:2"),
                ("localhost:1 localhost:2", "localhost:1 localhost:2"),
                ("localhost:1,", ""),
            )
        ),
        *(
            ({"KAFKA__BOOTSTRAP_SERVERS": server}, f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {server!r} names a protocol")
            for server in ("kafka://localhost:1", "SSL://localhost:1")
        ),
        ({"KAFKA__BOOTSTRAP_SERVERS": "::1:9092"}, "WORKER_KAFKA__BOOTSTRAP_SERVERS: '::1:9092' is one long IPv6"),
        (
            {"KAFKA__BOOTSTRAP_SERVERS": "fd00::5:19092", "KAFKA__ALLOW_PLAINTEXT": "true"},
            "WORKER_KAFKA__BOOTSTRAP_SERVERS: 'fd00::5:19092' is one long IPv6",
        ),
        ({"KAFKA__INSECURE_TLS": "true"}, "WORKER_KAFKA__INSECURE_TLS: there is no TLS"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CA_LOCATION": "/etc", "KAFKA__INSECURE_TLS": "true"},
            "WORKER_KAFKA__SSL_CA_LOCATION: has no effect with WORKER_KAFKA__INSECURE_TLS=true, which accepts any cert",
        ),
        ({"KAFKA__SSL_CA_LOCATION": "/etc"}, "WORKER_KAFKA__SSL_CA_LOCATION: has no effect with PLAINTEXT"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CA_LOCATION": "/nowhere.pem"},
            "WORKER_KAFKA__SSL_CA_LOCATION: there is no file /nowhere.pem",
        ),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CERTIFICATE_LOCATION": "/etc"},
            "WORKER_KAFKA__SSL_CERTIFICATE_LOCATION: goes with SSL_KEY_LOCATION",
        ),
        ({"KAFKA__SSL_KEY_PASSWORD": "x"}, "WORKER_KAFKA__SSL_KEY_PASSWORD: there is no key to open"),
        ({"KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "WORKER_KAFKA__SASL_MECHANISM: SASL_SSL needs one"),
        ({"KAFKA__SASL_MECHANISM": "PLAIN"}, "WORKER_KAFKA__SASL_MECHANISM: has no effect with PLAINTEXT"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "KAFKA__SASL_MECHANISM": "PLAIN", "KAFKA__SASL_USERNAME": "u"},
            "WORKER_KAFKA__SASL_PASSWORD: PLAIN needs it",
        ),
        (
            {"KAFKA__SASL_USERNAME": "u"},
            "WORKER_KAFKA__SASL_USERNAME: has no effect with PLAINTEXT; set WORKER_KAFKA__SEC",
        ),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__OAUTH_SCOPE": "kafka"},
            "WORKER_KAFKA__OAUTH_SCOPE: has no effect with SSL; set WORKER_KAFKA__SECURITY_PROTOCOL to SASL_SSL, or",
        ),
        (
            {
                **{name.removeprefix("WORKER_"): value for name, value in SASL.items()},
                "KAFKA__SASL_PASSWORD": "p",
                "KAFKA__OAUTH_CLIENT_ID": "c",
            },
            "WORKER_KAFKA__OAUTH_CLIENT_ID: has no effect with SCRAM-SHA-512; set another WORKER_KAFKA__SASL_MECHANISM",
        ),
        (
            {"BATCHING__LANES": "3", "BATCHING__MAX_INFLIGHT_BATCHES": "2"},
            "WORKER_BATCHING__LANES: 3 lanes cannot all work on 2 batches",
        ),
        ({"BATCHING__LANES": "3"}, "WORKER_BATCHING__MAX_INFLIGHT_BYTES: must hold 5 batches"),
        ({"BATCHING__MAX_BATCH_SIZE": "65536"}, "WORKER_BATCHING__MAX_INFLIGHT_ROWS: must hold 3 batches"),
        ({"BATCHING__MAX_BATCH_BYTES": "33554432"}, "WORKER_BATCHING__MAX_INFLIGHT_BYTES: must hold 3 batches"),
        (
            {"DELIVERY__TRANSACTIONAL_ID": "a"},
            "WORKER_DELIVERY__TRANSACTIONAL_ID: has no effect with at_least_once; set",
        ),
        (
            {"DELIVERY__TRANSACTION_TIMEOUT_MS": "10000"},
            "WORKER_DELIVERY__TRANSACTION_TIMEOUT_MS: has no effect with at_least_once; set",
        ),
        (
            {"DELIVERY__GUARANTEE": "exactly_once", "DELIVERY__COMMIT_INTERVAL_MS": "2501"},
            "WORKER_DELIVERY__COMMIT_INTERVAL_MS: 2501 leaves too little",
        ),
        (
            {"DELIVERY__GUARANTEE": "exactly_once", "DELIVERY__ORDER": "key"},
            "WORKER_DELIVERY__ORDER: key lets answers leave ahead of earlier ones, and a transaction holds only",
        ),
        (
            {"KAFKA__CONFIG": '{"linger.ms": 60000}'},
            "WORKER_KAFKA__CONFIG: linger.ms must be less than WORKER_DELIVERY__DRAIN_TIMEOUT_S, or a stop ends",
        ),
        (
            {"BATCHING__LINGER_MS": "1000", "DELIVERY__DRAIN_TIMEOUT_S": "1"},
            "WORKER_BATCHING__LINGER_MS: must be less than",
        ),
        (
            {"BATCHING__LINGER_MS": "5", "BATCHING__LATENCY_BUDGET_MS": "50"},
            "WORKER_BATCHING__LATENCY_BUDGET_MS: has no effect with a linger of 5 ms; set WORKER_BATCHING__LINGER_MS",
        ),
        (
            {"MODEL__DEVICE": "cpu", "MODEL__PROVIDERS": "CPUExecutionProvider"},
            "WORKER_MODEL__DEVICE: cpu has no effect with WORKER_MODEL__PROVIDERS, which says where",
        ),
        ({"MODEL__WARM_UP_ROWS": "4,4"}, "WORKER_MODEL__WARM_UP_ROWS: one row count cannot tell"),
        (
            {"MODEL__INPUT_DEFAULTS": '{"a": 1, "b": NaN}'},
            "WORKER_MODEL__INPUT_DEFAULTS: b is nan, for which each request that leaves it out would be rejected; give",
        ),
        (
            {
                "MODEL__GPU_MEM_LIMIT": "8589934592",
                "MODEL__PROVIDER_OPTIONS": '{"CUDAExecutionProvider": {"gpu_mem_limit": 1}}',
            },
            "WORKER_MODEL__GPU_MEM_LIMIT: WORKER_MODEL__PROVIDER_OPTIONS sets it for CUDAExecutionProvider too; unset",
        ),
        (
            {
                "MODEL__ARENA_EXTEND_STRATEGY": "same_as_requested",
                "MODEL__PROVIDER_OPTIONS": '{"CUDAExecutionProvider": {"arena_extend_strategy": "kNextPowerOfTwo"}}',
            },
            "WORKER_MODEL__ARENA_EXTEND_STRATEGY: WORKER_MODEL__PROVIDER_OPTIONS sets it for CUDA",
        ),
        (
            {"MODEL__GPU_MEM_LIMIT": "8589934592", "MODEL__DEVICE": "cpu"},
            "WORKER_MODEL__GPU_MEM_LIMIT: has no effect with WORKER_MODEL__DEVICE=cpu; unset it",
        ),
        (
            {"MODEL__ARENA_EXTEND_STRATEGY": "next_power_of_two", "MODEL__PROVIDERS": "CPUExecutionProvider"},
            "WORKER_MODEL__ARENA_EXTEND_STRATEGY: has no effect with WORKER_MODEL__PROVIDERS without CUDA; unset it",
        ),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(given: dict[str, str], told: str) -> None:
    """One line that names the variable to change."""
    [line] = refused({f"WORKER_{name}": value for name, value in given.items()})

    assert line.startswith(told)


def delivered(**delivery: str) -> Settings:
    """Exactly once, and so many more DELIVERY keys."""
    given = {"guarantee": "exactly_once", **delivery}
    return load(None, LEAST | {variable("delivery", key): value for key, value in given.items()})


def test_the_commit_interval_depends_on_the_guarantee_unless_it_is_set() -> None:
    """Offsets alone may wait; answers in a transaction are read when it ends."""
    assert loaded().delivery.commit_interval_ms == 200
    assert delivered().delivery.commit_interval_ms == 100
    assert delivered(commit_interval_ms="200").delivery.commit_interval_ms == 200


def test_a_transactional_id_may_name_the_host() -> None:
    """As often as it likes; who fills it in is the Kafka room's to say."""
    assert delivered(transactional_id="g-{hostname}").delivery.transactional_id == "g-{hostname}"
    assert delivered(transactional_id="fixed").delivery.transactional_id == "fixed"
    assert delivered(transactional_id="").delivery.transactional_id is None, "an empty variable is not set"


def test_oauth_names_everything_it_lacks() -> None:
    """Three variables make an OIDC login."""
    lines = refused({"WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "WORKER_KAFKA__SASL_MECHANISM": "oauthbearer"})

    assert [line.partition(":")[0] for line in lines] == [
        "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL",
        "WORKER_KAFKA__OAUTH_CLIENT_ID",
        "WORKER_KAFKA__OAUTH_CLIENT_SECRET",
    ]


OAUTH = {
    "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "WORKER_KAFKA__SASL_MECHANISM": "OAUTHBEARER",
    "WORKER_KAFKA__OAUTH_CLIENT_ID": "me",
    "WORKER_KAFKA__OAUTH_CLIENT_SECRET": "hunter2",
}


@pytest.mark.parametrize(
    "url",
    [
        "http://idp/token",
        "HTTP://idp",
        "http://127.0.0.1.idp/token",
        "http://idp:443/token?https://",
        "http://[fd00::1]/token",
        "http://localhost.idp/token",
    ],
)
def test_a_secret_goes_to_the_issuer_of_tokens_encrypted(url: str) -> None:
    """Or it is allowed to go as it is, by the setting that allows plain connections to brokers."""
    environ = {**OAUTH, "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL": url}

    [line] = refused(environ)

    assert line.startswith("WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: the client's secret would go to ")
    assert line.endswith(" unencrypted; use https://, or set WORKER_KAFKA__ALLOW_PLAINTEXT=true")
    assert loaded(**_keys(environ), allow_plaintext="true").kafka.oauth_token_endpoint_url == url


@pytest.mark.parametrize(
    "url",
    [
        "idp/token",
        "//idp/token",
        "ftp://idp/token",
        "https:/idp/token",
        "https://",
        "https://me:hunter2@idp/token",
        "http://127.0.0.1\\@idp/token",
        "http://idp/a b",
        "http://[::1]idp/token",
        "http://127.0.0.1:80.idp/token",
        "ｈttps://idp",
    ],
)
def test_what_is_no_address_of_an_issuer_is_not_guessed_at(url: str) -> None:
    """The client would: without a scheme it takes http. A login in it is never shown."""
    [line] = refused({**OAUTH, "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL": url, "WORKER_KAFKA__ALLOW_PLAINTEXT": "true"})

    assert line.startswith("WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: is no address of an issuer of tokens")
    assert "hunter2" not in line


@pytest.mark.parametrize(
    "url", ["https://idp/token", "HTTPS://idp:8443", "http://127.0.0.1:1/x", "http://[::1]/t?a=@b"]
)
def test_an_encrypted_issuer_or_one_of_this_machine_is_fine(url: str) -> None:
    """As for brokers."""
    environ = {**OAUTH, "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL": url}

    assert loaded(**_keys(environ)).kafka.oauth_token_endpoint_url == url


@pytest.mark.parametrize("others", ["http://me:hunter2@w:8080/", "http://a:1/,http://me@b:2/", "w:8080", "data:,"])
def test_the_live_page_links_pages_alone_and_shows_no_login(others: str) -> None:
    """The page would show other text as it is, and all who reach it could read a login."""
    [line] = refused({"WORKER_TELEMETRY__REPLICAS": others})

    assert line.startswith("WORKER_TELEMETRY__REPLICAS: has what is no address of a page; write http://host:port/")
    assert "hunter2" not in line


def _keys(environ: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("WORKER_KAFKA__").lower(): value for name, value in environ.items()}


@pytest.mark.parametrize("servers", ["PLAINTEXT://kafka:1://127.0.0.1:1", "PLAINTEXT://kafka://127.0.0.1"])
def test_a_second_address_in_one_hides_no_broker(servers: str) -> None:
    """The client reads the first."""
    [line, *_] = refused({"WORKER_KAFKA__BOOTSTRAP_SERVERS": servers})

    assert "is no broker" in line or "unencrypted" in line


@pytest.mark.parametrize(
    "servers",
    ["localhost:9092", "localhost", "127.0.0.1:1,127.0.0.2:2", "[::1]:9092", "::1", "PLAINTEXT://127.0.0.1:1"],
)
def test_plaintext_is_fine_on_this_machine(servers: str) -> None:
    """Loopback crosses no network."""
    assert loaded(bootstrap_servers=servers).kafka.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("servers", ["fd00::5", "2001:db8::1:5", "1:2:3:4:5:6:7:8080", "fd00::9092", "fd00::ab12"])
def test_an_ipv6_address_without_a_port_needs_no_brackets(servers: str) -> None:
    """Where its end cannot be taken for a port."""
    assert loaded(bootstrap_servers=servers, allow_plaintext="true").kafka.bootstrap_servers == servers


def test_plaintext_to_another_machine_must_be_allowed() -> None:
    """An explicit yes is enough."""
    assert loaded(bootstrap_servers="kafka:9092", allow_plaintext="true").kafka.allow_plaintext


def test_the_page_of_settings_shows_the_reference() -> None:
    """Made by `python -m worker.settings docs/settings.md`."""
    page = (Path(__file__).parents[2] / "docs/settings.md").read_text(encoding="utf-8")

    assert with_reference(page) == page


@pytest.mark.parametrize(
    "document", ["", "<!-- end of settings -->", "<!-- settings: x -->\n<!-- end of settings -->\n" * 2]
)
def test_a_page_without_one_place_for_the_reference_is_not_touched(document: str) -> None:
    """A lost marker is an error, not a page without settings."""
    with pytest.raises(ValueError, match="places are marked"):
        with_reference(document)


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads would be a promise that nothing keeps."""
    package = Path(worker.__file__).parent
    declaring = {
        package / "settings" / name for name in ("sections.py", "kafka_sections.py", "loading.py", "__main__.py")
    }
    sources = [path for path in package.rglob("*.py") if path not in declaring]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)

    unread = [key for cls in SECTIONS.values() for key in cls.model_fields if not re.search(rf'[."]{key}\b', code)]

    assert unread == []


def test_the_reference_names_every_setting() -> None:
    """Each is one line: its variable, its default, its meaning."""
    rows = [line for line in reference().splitlines() if line.startswith("| `WORKER_")]

    names = [variable(section, key) for section, cls in SECTIONS.items() for key in cls.model_fields]
    assert sorted(row.split("`")[1] for row in rows) == sorted(names)
    assert all(field.description for cls in SECTIONS.values() for field in cls.model_fields.values())


def test_a_publisher_or_reader_needs_the_brokers_alone() -> None:
    """A worker's other variables may stand beside them; topics may be absent; names are judged all the same."""
    brokers = {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9092"}

    assert load_client(None, brokers).kafka.request_topics is None
    assert load_client(None, LEAST).kafka.request_topics == ("requests",)
    with pytest.raises(BadConfiguration, match="did you mean WORKER_KAFKA__GROUP_ID"):
        load_client(None, brokers | {"WORKER_KAFKA__GRUOP_ID": "x"})
    with pytest.raises(BadConfiguration, match="unencrypted"):
        load_client(None, {"WORKER_KAFKA__BOOTSTRAP_SERVERS": "kafka.example:9092"})


def test_scoring_needs_the_model_alone(tmp_path: Path) -> None:
    """No broker; bounds are judged as for a worker."""
    config = tmp_path / "worker.toml"
    config.write_text('[kafka]\ngroup_id = "g"\n[batching]\nmax_batch_size = 8\n')
    model = {"WORKER_MODEL__PATH": "/models/digits.onnx"}

    assert load_scoring(config, model).batching.max_batch_size == 8
    with pytest.raises(BadConfiguration, match="WORKER_MODEL__PATH: must be set"):
        load_scoring(config, {})
    with pytest.raises(BadConfiguration, match="MAX_INFLIGHT_BYTES: must hold 11 batches"):
        load_scoring(None, model | {"WORKER_BATCHING__LANES": "9"})
    with pytest.raises(BadConfiguration, match="WARM_UP_ROWS"):
        load_scoring(None, model | {"WORKER_MODEL__WARM_UP_ROWS": "4"})


def test_a_missing_setting_names_the_file_where_it_may_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that `init` has written here, or that `init` would write; once, and not where a file was read."""
    monkeypatch.chdir(tmp_path)
    file = Path("worker.toml")
    without_group = {"WORKER_KAFKA__GROUP_ID": ""}

    without_file = refused(without_group)
    file.write_text("[kafka]")
    with_file = refused(without_group)

    told = "no settings file was read: `inference-worker init --model model.onnx` writes worker.toml, and --config "
    assert without_file[1:] == [f"{told}worker.toml reads it"]
    assert with_file[1:] == ["worker.toml, in this folder, was not read: add --config worker.toml"]
    assert len(refused(without_group, file)) == 1
    assert len(refused({"WORKER_BATCHING__BUCKETS": '{"ids": {"axis": 1}}'})) == 1


WITH_STATE = {"WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}
WITH_STORE = WITH_STATE | {"WORKER_STATE__STORE": "redis://localhost:6379/0"}


def test_with_a_store_answers_are_at_least_once_and_states_have_no_topic() -> None:
    """Its password is shown nowhere."""
    settings = load(None, LEAST | WITH_STORE | {"WORKER_STATE__STORE_PASSWORD": "hidden"})

    assert settings.delivery.guarantee == "at_least_once"
    assert settings.kafka.changelog_topic is None
    shown = {setting.name: setting.text for setting in effective(settings)}
    assert shown["WORKER_STATE__STORE"] == "redis://localhost:6379/0"
    assert "hidden" not in repr(shown)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "http://hidden",
            "redis://user:hidden@/0",
            "redis://:hidden@localhost",
            "rediss://hidden:6379?password=hidden",
        ),
        *("rediss://hidden?ssl_cert_reqs=none", "redis://localhost/0#hidden", "redis://localhost/hidden", "redis://"),
        *("redis://localhost:hidden/0", "redis://localhost:6379/0 hidden", "redis://local\\hidden", "unix:///hidden"),
    ],
)
def test_the_address_of_a_store_has_neither_a_login_nor_options(address: str) -> None:
    """The client takes both there. It would be shown, or the certificate not looked at. The message repeats nothing."""
    (line,) = refused(WITH_STORE | {"WORKER_STATE__STORE": address})

    assert line.startswith("WORKER_STATE__STORE: is no address; write redis://host:6379/0")
    assert "hidden" not in line


@pytest.mark.parametrize(
    "host", ["10.0.0.5", "valkey:6379", "localhost.example.com:6379/0", "[fd00::1]:6379", "128.0.0.1/1"]
)
def test_a_store_in_clear_is_on_this_machine_or_allowed(host: str) -> None:
    """As brokers are: what requests bring crosses the network, and a login."""
    environ = WITH_STORE | {"WORKER_STATE__STORE": f"redis://{host}", "WORKER_STATE__STORE_PASSWORD": "hidden"}

    (line,) = refused(environ)

    assert line.startswith(f"WORKER_STATE__STORE: redis://{host} would cross the network unencrypted; use rediss://")
    for allowed in (
        environ | {"WORKER_STATE__STORE": f"rediss://{host}"},
        environ | {"WORKER_KAFKA__ALLOW_PLAINTEXT": "1"},
    ):
        assert load(None, LEAST | allowed).state.store == allowed["WORKER_STATE__STORE"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1/0", "127.9.9.9:6379/15", "[::1]:6379/0", "[::1]"])
def test_a_store_on_this_machine_needs_no_tls(host: str) -> None:
    """Nothing crosses a network."""
    assert load(None, LEAST | WITH_STORE | {"WORKER_STATE__STORE": f"redis://{host}"}).state.store == f"redis://{host}"


def test_with_state_answers_are_exactly_once_and_states_have_a_topic() -> None:
    """Unless they are set."""
    settings = load(None, LEAST | WITH_STATE)
    group = settings.kafka.group_id
    other = {"WORKER_DELIVERY__GUARANTEE": "at_least_once", "WORKER_KAFKA__CHANGELOG_TOPIC": "mine"}

    assert (settings.delivery.guarantee, settings.kafka.changelog_topic) == ("exactly_once", f"{group}-state")
    set_otherwise = load(None, LEAST | WITH_STATE | other)
    assert (set_otherwise.delivery.guarantee, set_otherwise.kafka.changelog_topic) == ("at_least_once", "mine")
    assert load(None, LEAST).kafka.changelog_topic is None
    without_group = {name: value for name, value in LEAST.items() if name != "WORKER_KAFKA__GROUP_ID"}
    with pytest.raises(BadConfiguration, match="WORKER_KAFKA__GROUP_ID: must be set"):
        load(None, without_group | WITH_STATE)


@pytest.mark.parametrize("number", [-inf, 0.5])
def test_a_state_begins_with_any_number(number: float) -> None:
    """A running maximum with -inf, which is no file's name."""
    assert load(None, LEAST | WITH_STATE | {"WORKER_STATE__INITIAL": f"{number}"}).state.initial == number


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"WORKER_KAFKA__CHANGELOG_TOPIC": "c"}, "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect without"),
        (
            WITH_STATE | {"WORKER_STATE__KEYS_IN_MEMORY": "5000"},
            "WORKER_STATE__KEYS_IN_MEMORY: has no effect without WORKER_STATE__DIRECTORY",
        ),
        (WITH_STORE | {"WORKER_DELIVERY__GUARANTEE": "exactly_once"}, "has no part in Kafka's transactions"),
        (WITH_STORE | {"WORKER_STATE__DIRECTORY": "states"}, "WORKER_STATE__DIRECTORY: has no effect with"),
        (WITH_STORE | {"WORKER_KAFKA__CHANGELOG_TOPIC": "c"}, "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect with"),
        (WITH_STORE | {"WORKER_STATE__STORE_CA_LOCATION": "ca.pem"}, "there is no TLS with redis://"),
        (
            WITH_STORE | {"WORKER_STATE__STORE": "rediss://host", "WORKER_STATE__STORE_CA_LOCATION": "nowhere.pem"},
            "there is no file nowhere.pem",
        ),
        (WITH_STATE | {"WORKER_STATE__STORE_PASSWORD": "x"}, "WORKER_STATE__STORE_PASSWORD: has no effect without"),
        (WITH_STATE | {"WORKER_STATE__KEY_PREFIX": "x"}, "WORKER_STATE__KEY_PREFIX: has no effect without"),
        ({"WORKER_STATE__TTL_S": "5"}, "WORKER_STATE__TTL_S: has no effect without WORKER_STATE__TENSORS"),
        (WITH_STATE | {"WORKER_KAFKA__REQUEST_TOPICS": "a,b"}, "with state there is one request topic"),
        (WITH_STATE | {"WORKER_KAFKA__CHANGELOG_TOPIC": "responses"}, "is also another topic of this worker"),
        (WITH_STATE | {"WORKER_STATE__INITIAL": "nowhere.npy"}, "WORKER_STATE__INITIAL: there is no file nowhere.npy"),
        (WITH_STATE | {"WORKER_MODEL__INPUT_DEFAULTS": '{"h_in": 0}'}, "h_in is state, and no request brings it"),
    ],
)
def test_settings_of_state_that_do_not_fit_are_refused(environ: dict[str, str], why: str) -> None:
    """One line, with what to do."""
    (line,) = refused({"WORKER_KAFKA__RESPONSE_TOPIC": "responses"} | environ)

    assert why in line
