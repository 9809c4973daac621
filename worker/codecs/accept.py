"""Which encodings an `accept` header admits for the answer.

Understands lists, weights (`q`) and the ranges `*/*` and `application/*`; other parameters mean nothing here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from worker.codecs.wire_contract import CONTENT_TYPES

_WEIGHT = re.compile(r"q=([01](?:\.\d{0,3})?)")


@lru_cache(maxsize=64)  # publishers send a handful of values; each is at most 1 KiB
def admitted(accept: str, own: str) -> tuple[str, ...]:
    """Our content types that `accept` admits, best first; `own`, the request's, wins a tie. Empty: none."""
    weights = dict(_range(item) for item in accept.split(",") if item.strip())
    weighed = [(_weight(weights, content_type), content_type) for content_type in CONTENT_TYPES]
    best_first = sorted(weighed, key=lambda pair: (-pair[0], pair[1] != own))
    return tuple(content_type for weight, content_type in best_first if weight > 0)


def _range(item: str) -> tuple[str, float]:
    """One media range and its weight: 1 without a `q`, 0 (not admitted) for one that cannot be read."""
    media, *parameters = (part.strip().lower() for part in item.split(";"))
    weight = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            match = _WEIGHT.fullmatch(parameter)
            weight = min(1.0, float(match[1])) if match else 0.0
    return media.strip('"'), weight


def _weight(weights: dict[str, float], content_type: str) -> float:
    """The weight of the most specific range that covers this type."""
    for media in (content_type, "application/*", "*/*"):
        if media in weights:
            return weights[media]
    return 0.0
