"""What of the settings a requester can notice, as a digest: replicas of one deployment have the same. Pure.

Not how fast, how full or where: a replica may have more lanes than another, and a batch of another size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from worker.settings.sections import Settings

NOTICED: Mapping[str, set[str]] = {
    "kafka": {
        *("response_topic", "reply_topics", "dead_letter_topic", "changelog_topic"),
        *("max_request_bytes", "default_content_type", "rows_headers", "null_value"),
    },
    "model": {"input_defaults", "non_finite_input", "non_finite_output"},
    "batching": {"timeout_ms", "max_request_rows", "buckets"},
    "delivery": {"guarantee", "order"},
    "state": {"tensors", "initial", "missing", "answer", "steps", "ttl_s"},
}


def wire_digest(settings: Settings) -> str:
    """A SHA-256 in hexadecimal."""
    noticed = {name: getattr(settings, name).model_dump(mode="json", include=keys) for name, keys in NOTICED.items()}
    return sha256(json.dumps(noticed, sort_keys=True).encode()).hexdigest()
