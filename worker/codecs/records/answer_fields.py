"""The fields of answers that have a schema, and how a wrong one is refused at start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from worker.core.failures import BadConfiguration, Code, Reject
from worker.core.schemas import SchemaType

# The field that has the message of an error; null in an answer.
ERROR = "error"


class AnswerField(NamedTuple):
    """A field of the answer: the datatype of the Open Inference Protocol, and its dimensions; () is one value."""

    name: str
    datatype: str
    dims: tuple[int | None, ...] = ()


# The fields that an answer keeps of its record: the path of each in the record, by its name in the answer.
Kept = Mapping[str, tuple[str, ...]]


class AnswerRecordWriter(Protocol):
    """Writes answers of one registered schema, with the frame that names it."""

    content_type: str

    def write(self, columns: Sequence[Sequence[Any]]) -> Sequence[bytes]:
        """The answers: of the kept fields' columns and then the fields', each with a value for each answer.

        Raises `Reject` if a value of any of them is not of its type.
        """

    def error(self, message: str) -> bytes:
        """The answer to a wrong record."""


class AnswerSchema(Protocol):
    """The schema of answers: its type, and its text as a registry takes it."""

    type: SchemaType
    text: str

    def writer(self, schema_id: int) -> AnswerRecordWriter:
        """Writes answers with the schema, which the registry knows by this id."""


def no_clash(fields: Iterable[AnswerField], kept: Kept) -> None:
    """Raises `BadConfiguration` if two fields have one name, or one has the name of `error`."""
    taken = {ERROR, *kept}
    if ERROR in kept:
        refuse(ERROR, "answers with a schema have a field of this name, for errors; it cannot be kept")
    for field in fields:
        if field.name in taken:
            what = "a field of this name, for errors" if field.name == ERROR else "this field already"
            refuse(field.name, f"the answer has {what}; choose another name")
        taken.add(field.name)


def refuse(name: str, why: str) -> NoReturn:
    """Raises `BadConfiguration` for an entry of the answer."""
    raise BadConfiguration(f"[records.answer] {name}: {why}")


def wrong_one(
    names: Sequence[str],
    columns: Sequence[Sequence[Any]],
    write: Callable[[str, Any], object],
    errors: tuple[type[Exception], ...],
) -> str:
    """The first field that has a value which cannot be written: the last one, if all others can."""
    for name, column in zip(names[:-1], columns, strict=False):
        try:
            for value in column:
                write(name, value)
        except errors:
            return name
    return names[-1]


def unfit(name: str, kept: Kept) -> Reject:
    """The refusal of a value that cannot be written."""
    if name in kept:
        return Reject(f"{name}: the answer keeps this field, and its value is not of the type in the answer's schema")
    return Reject(f"output {name}: its value is not of the type in the answer's schema", Code.INTERNAL)
