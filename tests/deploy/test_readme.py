"""The README and `docs/`, executed: settings, commands in their order, Python, on a real Kafka.

The broker's address and the topics of this run stand in for the pages' own. A block that no test knows fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient

from tests.deploy.settings import settings_of
from tests.kafka.cluster import TIMEOUT, Cluster, Sent, fresh
from tests.readme import GUIDE, ROOT, Block, blocks_of
from worker.core.records import Partition
from worker.core.tensors.specs import TensorSpec
from worker.settings import load
from worker.state import OutsideValues, StateLayout
from worker.state.layout import HEAD_BYTES, StateTensor
from worker.tools.state.states_file import SavedStates, save

PAGES = blocks_of(GUIDE)
# The outputs of `make demo`, `profile` and `bench` are pictures of one machine; blocks without a name are drawings.
# `mappings-compared` needs jq.
# `tests/integration/test_demo.py` tests the demo, `tests/integration/test_bench.py` a shorter `bench`, which takes
# minutes, `tests/unit/tools/profile/test_command.py` a sample of lengths, and `tests/unit/tools/records` proposals.
INFERRED = {"infer", "infer-printed"}
PICTURES = {*INFERRED, "demo", "demo-printed", "profile-printed", "profile-lengths-printed", "bench", "bench-printed"}
ONLY_LOOKED_AT = {"", "export", "mappings-compared", "own-image", "profile-lengths", *PICTURES}
# The settings that a worker needs and a page does not show.
NEEDED = {
    "WORKER_KAFKA__BOOTSTRAP_SERVERS": "localhost:9092",
    "WORKER_KAFKA__REQUEST_TOPICS": "requests",
    "WORKER_KAFKA__RESPONSE_TOPIC": "answers",
    "WORKER_KAFKA__GROUP_ID": "digits",
    "WORKER_MODEL__PATH": "model.onnx",
}
BLOCK_TIMEOUT = 240.0  # `profile` takes 19 s of a core, which is two minutes next to thirty waiting processes

_NAMES = re.compile(r'(?<=")(?:requests|answers|payments|scores|rejected|scorers)(?=")')
_EXPORT = re.compile(r"^export WORKER_KAFKA__BOOTSTRAP_SERVERS=.*\n", re.MULTILINE)
_FIGURE = re.compile(r"\d[\d,.]*")


def block(name: str) -> Block:
    """The pages' block of that name."""
    return next(found for found in PAGES if found.name == name)


class Reader:
    """A reader who types the pages' blocks into a terminal, in a folder with the README's model and settings file.

    `init` finds this run's names in its environment; every later command finds them in the file alone.
    """

    def __init__(self, kafka: Cluster, folder: Path, model: Path) -> None:
        self.kafka = kafka
        self.topics = {name: fresh(name) for name in ("requests", "answers", "rejected")}
        self._names = {**self.topics, "digits": fresh("digits")}
        self._folder = folder
        (folder / "worker").symlink_to(ROOT / "worker")  # pages name files from the clone's root
        shutil.copy(model, folder)
        self.type("init")
        self.type("check")

    def text(self, name: str) -> str:
        """A block, with this run's address and topics."""
        text = block(name).text.replace("localhost:9092", self.kafka.bootstrap_servers)
        return _NAMES.sub(lambda found: self._names[found[0]], text)

    def begin(self, name: str) -> subprocess.Popen[bytes]:
        """Type a block and leave it running."""
        # The worker in the place of the shell, so that it gets its signals.
        typed = re.sub(r"^inference-worker run\b", r"exec \g<0>", self.text(name), flags=re.MULTILINE)
        with (self._folder / name).open("wb") as out:
            return subprocess.Popen(
                ["sh", "-ec", typed],
                cwd=self._folder,
                env=in_a_terminal(self._folder) | (self._found if name == "init" else {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    @property
    def _found(self) -> dict[str, str]:
        return {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "WORKER_KAFKA__REQUEST_TOPICS": self.topics["requests"],
            "WORKER_KAFKA__RESPONSE_TOPIC": self.topics["answers"],
            "WORKER_KAFKA__DEAD_LETTER_TOPIC": self.topics["rejected"],
            "WORKER_KAFKA__GROUP_ID": self._names["digits"],
        }

    def type(self, name: str) -> str:
        """Type a block, wait for its end, and return its output. Fails the test when the block fails."""
        assert self.begin(name).wait(BLOCK_TIMEOUT) == 0, self.printed(name)
        return self.printed(name)

    def printed(self, name: str) -> str:
        """A block's output and errors so far, with the page's names and without figures."""
        text = (self._folder / name).read_text(encoding="utf-8")
        for name_of_page, name_of_ours in self._names.items():
            text = text.replace(name_of_ours, name_of_page)
        return _FIGURE.sub("#", text)

    @staticmethod
    def shown(name: str) -> str:
        """The output that the page shows, without figures."""
        return _FIGURE.sub("#", block(name).text)

    def answers(self, count: int) -> list[Message]:
        """`count` answers, as a consumer reads them."""
        config = {"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": fresh("readers")}
        consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topics["answers"]])
        found: list[Message] = []
        deadline = time.monotonic() + TIMEOUT
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} answers of {count}"
            found += [message for message in consumer.consume(count, 0.1) if message.error() is None]
        consumer.close()
        return found


class PaymentsReader(Reader):
    """A reader of the README, who has saved its settings and typed `check`, in a folder like the clone's root."""

    def __init__(self, kafka: Cluster, folder: Path) -> None:
        self.kafka = kafka
        self.topics = {name: fresh(name) for name in ("payments", "scores", "rejected")}
        self._names = {**self.topics, "scorers": fresh("scorers")}
        self._folder = folder
        (folder / "worker").symlink_to(ROOT / "worker")
        (folder / "payments.toml").write_text(self.text("payments"), encoding="utf-8")
        self.type("payments-check")


def in_a_terminal(folder: Path) -> dict[str, str]:
    """The environment after `.venv/bin/activate`, with no other variables of ours."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "80"}


def run_program(name: str, text: str, folder: Path) -> str:
    """Save a block as a file and run it, as the page says. Returns its output."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    ran = subprocess.run(
        ["python", f"{name}.py"],
        cwd=folder, env=in_a_terminal(folder), capture_output=True, text=True, check=False, timeout=BLOCK_TIMEOUT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the README's program writes."""
    folder = tmp_path_factory.mktemp("model")
    run_program("model", block("model").text, folder)
    return folder / "digits.onnx"


@pytest.fixture(scope="module")
def reader(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Reader]:
    """A reader whose worker runs."""
    reader = Reader(kafka, tmp_path_factory.mktemp("readme"), model)
    with serving(reader, "run"):
        yield reader


@pytest.fixture(scope="module")
def payments(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaymentsReader]:
    """A reader whose worker answers payments."""
    reader = PaymentsReader(kafka, tmp_path_factory.mktemp("payments"))
    with serving(reader, "payments-run"):
        yield reader


@contextmanager
def serving(reader: Reader, name: str) -> Iterator[None]:
    """The worker that this block starts; it is in its group until the end of the `with`."""
    worker = reader.begin(name)
    deadline = time.monotonic() + TIMEOUT
    while "partitions_assigned" not in reader.printed(name):
        assert worker.poll() is None, reader.printed(name)
        assert time.monotonic() < deadline, reader.printed(name)
        time.sleep(0.05)
    yield
    worker.terminate()
    assert worker.wait(TIMEOUT) == 0, reader.printed(name)


def test_every_block_is_tried() -> None:
    """A new block needs a test in one of these files, or a place in `ONLY_LOOKED_AT`."""
    tests = ("deploy/test_readme.py", "deploy/test_compose.py", "unit/inference/test_python_model.py")
    of_records = ("unit/test_records_page.py", "unit/inference/records/test_text.py")
    functions = "unit/inference/records/test_functions.py"
    source = "".join((ROOT / "tests" / name).read_text() for name in (*tests, *of_records, functions))

    untried = {found.name for found in PAGES if f'"{found.name}"' not in source}

    assert untried <= ONLY_LOOKED_AT
    assert [found.text for found in PAGES if not found.name and found.language] == []


def test_every_make_target_named_exists() -> None:
    """The pages name targets in blocks and in the text."""
    text = "\n".join(page.read_text() for page in GUIDE)
    named = set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", text, re.MULTILINE))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert {"demo", "setup", "bench"} <= {"".join(pair) for pair in named} <= set(targets)


def test_the_readme_s_payments_are_answered(payments: PaymentsReader) -> None:
    """The output is the page's, except for figures, and for the order of two partitions."""
    assert "Topics created" in payments.printed("payments-check")

    printed = payments.type("payments-publish")

    assert sorted(printed.splitlines()) == sorted(payments.shown("payments-printed").splitlines())


def test_the_client_s_page_asks_about_a_record(payments: PaymentsReader, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's worker answers it with a dictionary, and a wrong one with an error."""
    exec(payments.text("client-records"), {})  # noqa: S102  # the page's own words

    assert capsys.readouterr().out == block("client-records-printed").text


def test_check_finds_nothing_wrong(reader: Reader) -> None:
    """A worker starts with the file of `init`, and the missing topics have been made."""
    first = reader.printed("check")

    assert "A worker with these settings starts." in reader.type("check")
    assert "Topics created" in first
    assert "Topics created" not in reader.printed("check")
    assert set(reader.topics.values()) <= reader.kafka.admin.list_topics(timeout=TIMEOUT).topics.keys()


def test_init_ends_with_the_next_two_commands(reader: Reader) -> None:
    """They are the page's commands."""
    following = [line.strip() for line in reader.printed("init").splitlines()[-2:]]

    assert following == [block("check").text.strip(), block("run").text.strip()]


def test_a_first_try_is_answered(reader: Reader) -> None:
    """Its output is the page's, except for figures."""
    assert reader.type("publish") == reader.shown("publish-printed")


def test_a_client_of_one_s_own_is_answered(reader: Reader, tmp_path: Path) -> None:
    """The README's program prints the page's output: the model's results for three digits."""
    assert run_program("ask", reader.text("ask"), tmp_path) == block("ask-printed").text


def test_the_client_s_page_asks_and_names_the_model(
    kafka: Cluster, tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each program alone prints the page's output, with asyncio too. It has topics of its own, because other tests
    count the records in theirs.
    """
    reader = Reader(kafka, tmp_path, model)
    printed = {
        "client-ask": block("client-ask-printed").text,
        "client-signature": block("client-signature-printed").text,
    }
    printed["client-async"] = "100\n"

    with serving(reader, "run"):
        for name, expected in printed.items():
            exec(reader.text(name), {})  # noqa: S102  # the page's own words
            assert capsys.readouterr().out == expected


def test_the_client_installs_by_itself(tmp_path: Path) -> None:
    """It installs from its page's folder, and has nothing of the worker in it."""
    folder = block("client-install").text.split()[-1]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    shutil.copytree(ROOT / folder, tmp_path / "client")  # a build leaves folders behind
    built = subprocess.run([*pip, tmp_path, tmp_path / "client"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {"inference_client", "inference_client-0.1.0.dist-info"}
    assert "inference_client/py.typed" in names


def test_rows_are_answered_with_rows(reader: Reader) -> None:
    """The page's Python publishes plain rows; the answer has the key, the id, a label and ten numbers."""
    exec(reader.text("ask-rows"), {})  # noqa: S102  # the page's own words

    answer = next(found for found in reader.answers(1002) if dict(found.headers() or ()).get("request-id") == b"a1")

    head = int(dict(answer.headers() or ())["Inference-Header-Content-Length"] or 0)
    assert answer.key() == b"customer-17"
    assert len((answer.value() or b"")[head:]) == 8 + 40


def test_exactly_once_is_a_setting_away(kafka: Cluster, tmp_path: Path, model: Path) -> None:
    """The page's next worker answers in transactions, and the rest of the page works unchanged."""
    reader = Reader(kafka, tmp_path, model)

    with serving(reader, "exactly-once"):
        published = reader.type("publish")

    assert published == reader.shown("publish-printed")
    assert '"event":"transactions_opened"' in reader.printed("exactly-once").replace(" ", "")


def test_the_newest_answers_are_shown(reader: Reader) -> None:
    """Each answer is one paragraph."""
    printed = reader.type("consume")

    assert printed.count(" ok ") == printed.count("probabilities FP#[# #]") == 3


def test_dead_letters_are_listed_and_could_be_replayed(reader: Reader) -> None:
    """For two bad requests the output is the page's."""
    for count, value in enumerate((b'{"inputs": []}', b"zzz"), 1):
        reader.kafka.produce(reader.topics["requests"], [Sent(None, value)])
        reader.kafka.read(reader.topics["rejected"], count)
        time.sleep(1.0)  # the page's two came in different seconds

    assert reader.type("dead-letters") == reader.shown("dead-letters-printed")


def test_a_file_is_answered_without_kafka(reader: Reader) -> None:
    """A wrong line gets a worker's error."""
    assert reader.type("score") == reader.shown("score-printed")


def test_repeats_are_dropped(reader: Reader) -> None:
    """All answers come twice, in any mix of partitions, and the page's function passes each once."""
    found = reader.answers(1000)[:1000]
    page: dict[str, object] = {}
    exec(reader.text("drop-repeats"), page)  # noqa: S102  # the page's own words
    is_repeat, highest = page["is_repeat"], {}  # type: ignore[var-annotated]
    assert callable(is_repeat)

    again = [[is_repeat(answer, highest) for answer in found] for _ in range(2)]

    assert again == [[False] * len(found), [True] * len(found)]


def test_profile_advises(reader: Reader) -> None:
    """It advises for the page's rate and budget; the advice depends on the machine."""
    assert "is your limit" in reader.type("profile")


def test_buckets_are_set_as_the_page_says(tmp_path: Path) -> None:
    """The worker takes the page's variable as a shell passes it."""
    typed = f'{block("buckets").text}printf %s "$WORKER_BATCHING__BUCKETS"'
    value = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True).stdout

    settings = settings_of({**NEEDED, "WORKER_BATCHING__BUCKETS": value}, tmp_path)

    assert settings.batching.buckets["input_ids"]


def test_the_settings_of_state_hold(tmp_path: Path) -> None:
    """They make the guarantee exactly once, and name the changelog after the group."""
    (tmp_path / "worker.toml").write_text(block("state-settings").text)

    settings = load(tmp_path / "worker.toml", NEEDED)

    assert settings.state.tensors == {"h_in": "h_out"}
    assert settings.delivery.guarantee == "exactly_once"
    assert settings.kafka.changelog_topic == "digits-state"


def test_the_settings_of_a_store_outside_hold(tmp_path: Path) -> None:
    """They mean no changelog, and make the guarantee at least once."""
    with_state = {**NEEDED, "WORKER_STATE__TENSORS": '{"h_in": "h_out"}'}
    name, value = block("store-settings").text.removeprefix("export ").strip().split("=", 1)

    settings = settings_of({**with_state, name: value}, tmp_path)

    assert settings.delivery.guarantee == "at_least_once"
    assert settings.kafka.changelog_topic is None


def test_a_value_of_a_store_outside_is_read() -> None:
    """The page's own lines read it; a forgotten key has no state."""
    layout = StateLayout((StateTensor(TensorSpec("h_in", "FP32", (16,)), "h_out"),), (np.zeros(16, "<f4"),))
    partition, tensor = Partition("requests", 3), np.arange(16, dtype="<f4")[None]
    (value,) = layout.written(np.array([7]), np.array([8]), np.zeros(1), [tensor])
    values = OutsideValues(layout)
    found: dict[str, Any] = {}

    exec(block("store-value").text, found)  # noqa: S102  # the page's own words

    state = found["state_of"](values.written(partition, value))
    assert (state["offset"], state["used_ms"], state["h_in"].tolist()) == (7, 8, tensor[0].tolist())
    assert found["state_of"](values.forgotten(partition, value[:HEAD_BYTES])) is None
    assert found["state_of"](None) is None


def test_an_exported_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own lines read it."""
    layout = StateLayout((StateTensor(TensorSpec("h_in", "FP32", (2,)), "h_out"),), (np.zeros(2, "<f4"),))
    tensor = np.arange(4, dtype="<f4").reshape(2, 2)
    states = SavedStates([b"a", b"bc"], np.array([0, 3]), 4, np.array([5, 6]), [tensor])
    save(tmp_path / "states.npz", layout, states)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}

    exec(block("states-file").text, found)  # noqa: S102  # the page's own words

    assert (found["keys"], found["partitions"].tolist(), found["used_ms"].tolist()) == ([b"a", b"bc"], [0, 3], [5, 6])
    assert found["states"].tolist() == tensor.tolist()


@pytest.mark.skipif(shutil.which("mvn") is None, reason="no Maven: the page's broker is not tried")
def test_a_broker_without_docker_tells_its_address(tmp_path: Path) -> None:
    """It prints the shell line that sets the address, and answers there."""
    typed = re.sub(r"^python", f"exec {sys.executable}", block("broker-java").text)
    with (tmp_path / "printed").open("wb") as out:
        broker = subprocess.Popen(["sh", "-c", typed], cwd=ROOT, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + TIMEOUT
        while not (line := _EXPORT.search((tmp_path / "printed").read_text())):
            assert broker.poll() is None, (tmp_path / "printed").read_text()
            assert time.monotonic() < deadline, (tmp_path / "printed").read_text()
            time.sleep(0.05)
        pasted = f'{line[0]}printf %s "$WORKER_KAFKA__BOOTSTRAP_SERVERS"'
        told = subprocess.run(["sh", "-c", pasted], capture_output=True, text=True, check=True).stdout
        brokers = AdminClient({"bootstrap.servers": told}).list_topics(timeout=TIMEOUT).brokers
    finally:
        broker.send_signal(signal.SIGINT)
        broker.wait(TIMEOUT)

    assert [f"{broker.host}:{broker.port}" for broker in brokers.values()] == [told]


def test_what_is_installed_is_what_the_images_have() -> None:
    """The page's lock is the CPU image's, whose build is tested; the other lock that it names exists."""
    (lock,) = re.findall(r"--require-hashes -r (\S+)", block("install-cpu").text)

    assert lock == "requirements-cpu.txt"
    assert all((ROOT / f"requirements-{variant}.txt").exists() for variant in ("cpu", "cuda"))
    assert "requirements-${VARIANT}.txt" in (ROOT / "deploy/Dockerfile").read_text()
