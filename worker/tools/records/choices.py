"""Finds which records of a sample the model is for, and whether an array of theirs has its rows. Pure.

Both are proposed only where they are plain: a field tells kinds of records apart that have different fields, and one
array of objects alone has what the inputs lack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from worker.codecs.records.paths import EACH, Path
from worker.terminal.terminal import count
from worker.tools.records.inputs import Entry, written
from worker.tools.records.sample import Kind, Sample, Seen, at

# The entries that feed the model from the fields of a sample.
Feeds = Callable[[Sample], list[Entry]]

_MOST_KINDS = 10
_LEAST_OF_A_KIND = 2  # a field that one record lacks may be missing by chance


class Kinds(NamedTuple):
    """The kinds of records that are answered: the entry that names them, and the sample of their records."""

    entry: Entry
    sample: Sample


def kinds_in(sample: Sample, feeds: Feeds) -> Kinds | None:
    """The kinds of records whose fields feed the model, if others have other fields; None if that is not plain."""
    entries = feeds(sample)
    if not _has_open(entries) and not any(seen.lacks for entry in entries for seen in entry.seen):
        return None
    found = (_kinds_by(seen, sample, feeds) for seen in sample.fields if _may_tell_kinds(seen))
    return next((kinds for kinds in found if kinds is not None), None)


def _may_tell_kinds(seen: Seen) -> bool:
    has_few = 2 <= len(seen.names) <= _MOST_KINDS and min(seen.names.values()) >= _LEAST_OF_A_KIND
    is_plain = not seen.path.has_each and isinstance(written(seen.path), str)
    return has_few and is_plain and seen.kind is Kind.TEXT and not seen.lacks


def _kinds_by(seen: Seen, sample: Sample, feeds: Feeds) -> Kinds | None:
    """The kinds by the value of this field."""
    objects = defaultdict[str, list[Mapping[str, Any]]](list)
    for one in sample.objects:
        objects[at(one, seen.path.steps)].append(one)
    samples = {name: sample.of(ones) for name, ones in objects.items()}
    fed = [name for name, one in samples.items() if _is_plain(feeds(one))]
    others = sorted(samples.keys() - fed)
    answered = sample.of([one for name in fed for one in objects[name]])
    entries = feeds(answered) if fed and others else []
    if not entries or not _is_plain(entries):
        return None
    always = {found.path for entry in entries for found in entry.seen if not found.lacks}
    if not all(always - {found.path for found in samples[name].fields} for name in others):
        return None
    said = (
        f"{seen}. {len(answered.objects)} of {count(len(sample.objects), 'record')} are of these kinds, and have the "
        f"fields of the inputs. Records of other kinds lack some, and are passed over: {', '.join(others)}. Confirm it."
    )
    return Kinds(Entry("", "only", {str(seen.path): sorted(fed)}, said), answered)


def by_rows(feeds: Feeds, sample: Sample) -> list[Entry]:
    """The entries for this sample: as it is, or if some stay open with the one array that has them as the rows."""
    entries = feeds(sample)
    if not _has_open(entries):
        return entries
    found = [made for array in _arrays(sample) if (made := _rows_of(array, sample, feeds)) is not None]
    return found[0] if len(found) == 1 else entries


def _arrays(sample: Sample) -> Iterator[Path]:
    """Yields the arrays of objects that each record has, with an element at least."""
    paths = [seen.path.steps for seen in sample.fields if seen.path.has_each]
    for steps in dict.fromkeys(steps[: steps.index(EACH)] for steps in paths):
        if isinstance(written(Path(steps)), str) and all(_has_elements(at(one, steps)) for one in sample.objects):
            yield Path(steps)


def _has_elements(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, dict) for each in value)


def _rows_of(array: Path, sample: Sample, feeds: Feeds) -> list[Entry] | None:
    """The entries if this array's elements are the rows; None if some stay open."""
    fields = [replace(seen, is_of_row=seen.path.below(array)) for seen in sample.fields]
    entries = feeds(sample._replace(fields=fields))
    if not _is_plain(entries) or not any(seen.is_of_row for entry in entries for seen in entry.seen):
        return None
    said = f"Each element of {array} is a row: it alone has fields for all inputs. Confirm it."
    return [Entry("", "rows", str(array), said), *entries]


def _has_open(entries: Sequence[Entry]) -> bool:
    return any(entry.value is None for entry in entries)


def _is_plain(entries: Sequence[Entry]) -> bool:
    return not any(entry.value is None or entry.is_guess for entry in entries)
