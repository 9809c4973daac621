"""The wire contract for some models: reads records into chunks, and writes answers. Owns the count of rejections."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.codecs.answer_forms import AnswerForm, form_of
from worker.codecs.answer_writer import AnswerWriter
from worker.codecs.reader import RequestReader
from worker.codecs.wire_contract import Wire
from worker.core.chunk import Prediction
from worker.core.records import Answer, Fields, Rejection, ReplyForm
from worker.core.rejections import Rejections
from worker.core.tensors.signature import Signature


class Codec(RequestReader):
    """Both directions (`ports.Codec`). A bad record gives a `Rejection`, never an exception."""

    def __init__(
        self,
        signatures: Sequence[Signature],
        wire: Wire,
        tell: Callable[[Rejection], object] = lambda _: None,
        rejections: Rejections | None = None,
        form_of: Callable[[ReplyForm], AnswerForm] = form_of,
    ) -> None:
        """`tell` is called with each rejection of a record that the model answered; `rejections` counts all of them.

        `form_of` finds the form of a reply.
        """
        super().__init__(signatures, wire)
        self._writer = AnswerWriter(signatures, wire, tell, form_of)
        self._rejections = rejections or Rejections()

    def write(self, prediction: Prediction) -> Sequence[Answer]:
        """The answers to a chunk that the model answered, by index. One that cannot be written is a rejection."""
        return self._writer.write(prediction.chunk, prediction.outputs, prediction.start)

    def messages(self, answers: Sequence[Answer]) -> Sequence[Fields]:
        """The messages of answers that leave, in order. A rejection gives an error and a dead letter, or none."""
        if Rejection not in map(type, answers):  # nearly always
            self._rejections.predicted()
            return answers  # type: ignore[return-value]  # all are messages
        messages: list[Fields] = []
        for answer in answers:
            if isinstance(answer, Rejection):
                self._rejections.rejected(answer)
                messages += self._writer.refuse(answer)
            else:
                self._rejections.predicted()
                messages.append(answer)
        return messages
