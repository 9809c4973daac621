"""One replay among fakes: which letters go, when they count as done, and what is reported about the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from tests.unit.tools.dead_letters.builders import DEAD, FakePublisher, letter
from worker.codecs.dead_letters import Letter
from worker.codecs.request_headers import Envelopes
from worker.codecs.wire_contract import JSON
from worker.core.failures import BadConfiguration, Code
from worker.core.records import Partition
from worker.tools.dead_letters import replay as module
from worker.tools.dead_letters.letters import LetterFilter
from worker.tools.dead_letters.replay import Publishers, Replay, surveyed
from worker.tools.kafka.publisher import Publisher

OTHER = Partition("dead", 1)


class Stage:
    """Topics that letters may go to, except `gone`, and the offsets of each commit."""

    def __init__(self, to: str | None = None) -> None:
        self.topics: dict[str, FakePublisher] = {}
        self.commits: list[dict[Partition, int]] = []
        self.publishers = Publishers(self._open, "dead", to)

    def _open(self, topic: str) -> Publisher:
        if topic == "gone":
            raise BadConfiguration("there is no topic gone")
        return cast("Publisher", self.topics.setdefault(topic, FakePublisher(topic)))

    def replay(
        self,
        letters: Sequence[Letter],
        wanted: LetterFilter = LetterFilter(),  # noqa: B008 - a frozen value
        *,
        ends: Mapping[Partition, int] | None = None,
        limit: int | None = None,
    ) -> Replay:
        run = Replay(self.publishers, Envelopes(JSON), lambda offsets: self.commits.append(dict(offsets)))
        run.run(letters, lambda: ends or {DEAD: len(letters)}, wanted, limit)
        return run

    def offsets(self, topic: str = "requests") -> list[int]:
        """The original offsets of the requests that were sent back."""
        return [
            int((dict(sent.headers)["replay-of"] or b"").rpartition(b"/")[2]) for sent in self.topics[topic].arrived
        ]


def test_every_letter_goes_and_then_the_offsets_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """They move portion by portion, and in the end past transaction markers, which are no letters."""
    monkeypatch.setattr(module, "PORTION", 2)
    stage = Stage()

    run = stage.replay([letter(at) for at in range(5)], ends={DEAD: 7, OTHER: 3})

    assert stage.offsets() == [100, 101, 102, 103, 104]
    assert stage.commits == [{DEAD: 2}, {DEAD: 4}, {DEAD: 7, OTHER: 3}]
    assert run.counts.sent == {("requests", "INVALID_ARGUMENT"): 5}


def test_a_request_goes_back_as_it_was_to_where_it_lay() -> None:
    """It keeps key, value and headers. In a smaller topic, or another one, its key chooses the partition."""
    stage, elsewhere = Stage(), Stage(to="elsewhere")
    given = [letter(value=b"\0\xff", headers=[("h", b"\xff"), ("n", None)]), letter(1, key=None)]

    stage.replay(given)
    elsewhere.replay(given)

    first, second = stage.topics["requests"].arrived
    assert (first.value, first.key, first.partition, second.partition) == (b"\0\xff", b"k", 2, 2)
    assert first.headers[:2] == [("h", b"\xff"), ("n", None)]
    assert [sent.partition for sent in elsewhere.topics["elsewhere"].arrived] == [-1, 2]


def test_a_limit_is_exact_and_the_offset_stands_behind_the_last_that_went() -> None:
    """The next replay begins there."""
    stage = Stage()

    stage.replay([letter(at) for at in range(10)], limit=4)

    assert len(stage.offsets()) == 4
    assert stage.commits == [{DEAD: 4}]


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (letter(1, value=b"x" * 5000, limit=2000), "the record's value did not fit into the dead letter"),
        (letter(1, request_topic="gone"), "there is no topic gone"),
        (letter(1, request_topic="dead"), "no request comes from dead"),
        (letter(1, request_topic="__consumer_offsets"), "no request comes from __consumer_offsets"),
        (letter(1, request_topic="no\0topic"), "no topic is called 'no\\x00topic'"),
        (letter(1)._replace(origin=None), "the dead letter does not say where it came from; give --to"),
        (letter(1, value=b"x" * 2000), "too large"),
    ],
)
def test_a_letter_that_cannot_go_is_named_and_holds_up_no_other(odd: Letter, told: str) -> None:
    """The others go, and the offsets move past it."""
    stage = Stage()

    run = stage.replay([letter(0), odd, letter(2)])

    assert stage.offsets() == [100, 102]
    assert (run.counts.unsent, run.counts.places) == ({told: 1}, {told: ["dead/0/1"]})
    assert stage.commits[-1] == {DEAD: 3}


def test_what_would_be_sent_is_counted_without_sending() -> None:
    """It is counted by topic and code, up to the limit."""
    stage = Stage()
    letters = [letter(0), letter(1, request_topic="gone"), letter(2), letter(3, code=Code.INTERNAL)]

    found = surveyed(letters, stage.publishers, None)

    assert found.sent == {("requests", "INVALID_ARGUMENT"): 2, ("requests", "INTERNAL"): 1}
    assert found.unsent == {"there is no topic gone": 1}
    assert surveyed(letters, stage.publishers, 2).sent.total() == 2
    assert stage.topics["requests"].waiting == []
