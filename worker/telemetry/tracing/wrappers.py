"""Codec, lanes and producer with tracing around them: where a request's spans begin and end.

`assembly.py` puts these in the place of the bare ones when tracing is on, so that it costs nothing while it is off. A
followed request is one whose reply is a `FollowedReply`: its spans travel with it, through batches, halves and
rejections, to its messages. So only messages not yet acknowledged are listed here; a request that a revoke or a failed
transaction takes away is forgotten with its spans, and its next reader traces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from worker.core.failures import Code
from worker.core.records import Ending, Finished, Message, Outcome, Partition, Place, Record, Rejection, Reply, Request
from worker.ports import Codec, Lanes
from worker.telemetry.tracing.spans import TRACEPARENT, RequestSpans, ServedModel, Tracing


class TwoWayCodec(Codec, Protocol):
    """What the loop decodes by, and the delivery encodes by."""

    def encode(self, outcome: Outcome) -> Sequence[Message]: ...


class Sink(Protocol):
    def send(self, messages: Sequence[Message], place: Place) -> None: ...
    def poll(self, timeout: float) -> Sequence[Place]: ...
    def push(self) -> None: ...


class Transactions(Protocol):
    def begin(self) -> None: ...
    def send(self, messages: Sequence[Message], place: Place) -> None: ...
    def commit(self, offsets: Mapping[Partition, int]) -> None: ...
    def abort(self) -> None: ...
    def ended(self, timeout: float) -> Ending | None: ...
    def serve(self, timeout: float) -> None: ...


class FollowedReply(Reply):
    """The reply of a followed request."""

    spans: RequestSpans


class FollowedMessage(Message):
    """A message that answers a followed request, or keeps it."""

    spans: RequestSpans


class TracedCodec:
    """Begins to follow requests on the way in; on the way out gives their answers a context to go on from."""

    def __init__(self, codec: TwoWayCodec, tracing: Tracing) -> None:
        self._codec = codec
        self._tracing = tracing

    def decode(self, record: Record) -> Request | Rejection:
        taken = self._codec.decode(record)
        if not taken.reply.echo:
            return taken
        reply = self._followed(record, taken.reply)
        if isinstance(taken, Rejection):
            return taken._replace(reply=reply)
        taken.reply = reply
        return taken

    def decode_all(self, records: Sequence[Record]) -> Sequence[Request | Rejection]:
        """One by one: each has spans of its own."""
        return [self.decode(record) for record in records]

    def refuse(self, record: Record, code: Code, message: str) -> Rejection:
        refused = self._codec.refuse(record, code, message)
        return refused._replace(reply=self._followed(record, refused.reply))

    def _followed(self, record: Record, reply: Reply) -> Reply:
        """The reply, with spans if its request is to be followed."""
        spans = self._tracing.follow(record, reply.echo)
        if spans is None:
            return reply
        followed = FollowedReply._make(reply)
        followed.spans = spans
        return followed

    def encode(self, outcome: Outcome) -> Sequence[Message]:
        """As the codec does, but that an answer names its own `send` span, where it echoed its request's context.

        A dead letter keeps what its request came with: it may be sent again.
        """
        messages = self._codec.encode(outcome)
        reply = outcome.reply if isinstance(outcome, Rejection) else outcome.request.reply
        if not isinstance(reply, FollowedReply) or not messages:
            return messages
        answer, *letters = messages
        code = dict(answer.headers).get("error-code")
        if code is not None:
            self._tracing.refused(reply.spans, code.decode())
        # As long as the header it stands for, or shorter: the answer still fits its topic.
        ours = self._tracing.sent(reply.spans, answer)
        headers = [(name, ours if name.lower() == TRACEPARENT else value) for name, value in answer.headers]
        for letter in letters:
            self._tracing.sent(reply.spans, letter)
        return [_followed(message, reply.spans) for message in (answer._replace(headers=headers), *letters)]


class TracedLanes:
    """Traces each run in which followed requests took part."""

    def __init__(self, lanes: Lanes, tracing: Tracing, model: ServedModel) -> None:
        self._lanes = lanes
        self._tracing = tracing
        self._model = model
        self.submit = lanes.submit
        self.resubmit = lanes.resubmit
        self.probe = lanes.probe

    @property
    def in_flight(self) -> int:
        return self._lanes.in_flight

    def finished(self, timeout: float) -> Sequence[Finished]:
        finished = self._lanes.finished(timeout)
        for run in finished:
            if run.batch is not None:
                followed = [r.reply.spans for r in run.batch.requests if isinstance(r.reply, FollowedReply)]
                if followed:
                    self._tracing.ran(run, run.batch, followed, self._model)
        return finished


class TracedSink:
    """Ends the spans of what is durable. Owns the spans of requests whose messages are on the way."""

    def __init__(self, sink: Sink, tracing: Tracing) -> None:
        self._sink = sink
        self._tracing = tracing
        self._on_the_way: dict[Place, RequestSpans] = {}
        self.push = sink.push

    def send(self, messages: Sequence[Message], place: Place) -> None:
        if isinstance(messages[0], FollowedMessage):  # those of one place are followed alike
            self._on_the_way[place] = messages[0].spans
        self._sink.send(messages, place)

    def poll(self, timeout: float) -> Sequence[Place]:
        delivered = self._sink.poll(timeout)
        if self._on_the_way:
            for place in delivered:
                spans = self._on_the_way.pop(place, None)
                if spans is not None:
                    self._tracing.acknowledged(spans)
        return delivered


class TracedTransactions:
    """Ends the spans of what is committed. Owns the spans of what is in the transaction.

    Those of a transaction that failed are dropped, unended. One in doubt that was committed after all leaves no spans.
    """

    def __init__(self, transactions: Transactions, tracing: Tracing) -> None:
        self._transactions = transactions
        self._tracing = tracing
        self._inside: list[RequestSpans] = []
        self.begin = transactions.begin
        self.commit = transactions.commit
        self.abort = transactions.abort
        self.serve = transactions.serve

    def send(self, messages: Sequence[Message], place: Place) -> None:
        if messages and isinstance(messages[0], FollowedMessage):
            self._inside.append(messages[0].spans)
        self._transactions.send(messages, place)

    def ended(self, timeout: float) -> Ending | None:
        ending = self._transactions.ended(timeout)
        if ending is not None:
            followed, self._inside = self._inside, []
            for spans in followed if ending.failure is None else ():
                self._tracing.acknowledged(spans)
        return ending


def _followed(message: Message, spans: RequestSpans) -> FollowedMessage:
    followed = FollowedMessage._make(message)
    followed.spans = spans
    return followed
