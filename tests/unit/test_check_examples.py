"""The shell lines that `check` shows: short where they can be, and without secrets."""

from __future__ import annotations

from worker.codecs.examples import EncodedRequest, Encoding
from worker.commands.check_examples import publish_function, sent
from worker.settings import MASK

ROWS = (("content-type", b"application/octet-stream"),)
JSON = (("content-type", b"application/json"),)
REPORT = "inference-worker check --json"


def test_the_password_is_taken_from_where_the_worker_has_it() -> None:
    """What is shown may end up in a chat."""
    shown = publish_function(
        {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": "a:9093, b:9093",
            "WORKER_KAFKA__REQUEST_TOPICS": "requests,backfill",
            "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "WORKER_KAFKA__SASL_USERNAME": "o'brien",
            "WORKER_KAFKA__SASL_PASSWORD": MASK,
            "WORKER_KAFKA__SASL_MECHANISM": "",
        }
    )

    assert all(line.endswith(" \\") and line.isprintable() for line in shown[:-1])
    assert " ".join(line.rstrip("\\").strip() for line in shown) == (
        "publish() { kcat -P -b 'a:9093, b:9093' -X partitioner=murmur2_random -X enable.idempotence=true "
        "-X security.protocol=SASL_SSL -X sasl.username='o'\"'\"'brien' "
        '-X sasl.password="$WORKER_KAFKA__SASL_PASSWORD" -t requests -k example '
        '"$@"; }'
    )


def test_zeros_are_made_and_other_bytes_printed() -> None:
    """A row of zeros is one word, however wide."""
    zeros = sent(Encoding.ROWS, EncodedRequest(ROWS, bytes(4096)), REPORT)
    mixed = sent(Encoding.BINARY, EncodedRequest(ROWS, b"a'%\\\n\xff" + bytes(100)), REPORT)
    whole = sent(Encoding.PROTOBUF, EncodedRequest(ROWS, b"ab"), REPORT)

    publish = "publish -H content-type=application/octet-stream request.bin"
    assert zeros == ["head -c 4096 /dev/zero > request.bin", publish]
    assert mixed == ["{ printf 'a\\047\\045\\134\\012\\377'; head -c 100 /dev/zero; } > request.bin", publish]
    assert whole == ["printf 'ab' > request.bin", publish]


def test_a_long_request_is_fetched_from_the_report() -> None:
    """And JSON that a shell's echo would change is not left to it."""
    short = sent(Encoding.JSON, EncodedRequest(JSON, b"{}"), REPORT)
    long = sent(Encoding.JSON, EncodedRequest(JSON, b"1" * 401), REPORT)
    escaped = sent(Encoding.JSON, EncodedRequest(JSON, b'"\\n"'), REPORT)

    assert short == ["echo '{}' |", "  publish -H content-type=application/json"]
    assert long[0] == f"{REPORT} | jq -r .examples.json.value_base64 | base64 -d > request.json"
    assert escaped[0] == "printf '\"\\134n\"' > request.json"


def test_what_is_not_printable_is_not_written_raw() -> None:
    """A terminal would obey it, and nobody could copy it."""
    lines = sent(Encoding.JSON, EncodedRequest(JSON, '"\x9b31m"'.encode()), REPORT)

    assert lines[0] == "printf '\"\\302\\23331m\"' > request.json"
