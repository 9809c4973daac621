"""The shell lines that `check` shows: short where they can be, and without secrets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from worker.codecs.examples import EncodedRequest, Encoding
from worker.commands.check.kcat_examples import publish_function, sent
from worker.core.secrets import MASK

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
        '-X sasl.password="${WORKER_KAFKA__SASL_PASSWORD:-$(cat "$WORKER_KAFKA__SASL_PASSWORD_FILE")}" '
        '-t requests -k example "$@"; }'
    )


def test_whoever_logs_in_by_a_token_does_so_with_kcat_too() -> None:
    """And what is not verified here is not verified there."""
    shown = publish_function(
        {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": "a:9093",
            "WORKER_KAFKA__REQUEST_TOPICS": "requests",
            "WORKER_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "WORKER_KAFKA__INSECURE_TLS": "true",
            "WORKER_KAFKA__SASL_MECHANISM": "OAUTHBEARER",
            "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL": "https://a/token",
            "WORKER_KAFKA__OAUTH_CLIENT_ID": "me",
            "WORKER_KAFKA__OAUTH_CLIENT_SECRET": MASK,
        }
    )

    options = {option.partition(" ")[0] for line in shown for option in line.split("-X ")[1:]}
    assert options >= {
        "enable.ssl.certificate.verification=false",
        "sasl.mechanism=OAUTHBEARER",
        "sasl.oauthbearer.method=oidc",
        "sasl.oauthbearer.token.endpoint.url=https://a/token",
        "sasl.oauthbearer.client.id=me",
    }


def test_a_secret_in_a_file_is_read_by_the_shell(tmp_path: Path) -> None:
    """In the environment it goes before the file, which is then not looked for."""
    file = tmp_path / "password"
    file.write_text("from the file\n")
    lines = publish_function(
        {
            "WORKER_KAFKA__BOOTSTRAP_SERVERS": "a:9093",
            "WORKER_KAFKA__REQUEST_TOPICS": "requests",
            "WORKER_KAFKA__SASL_PASSWORD": MASK,
        }
    )
    script = "\n".join(["kcat() { printf '%s\\n' \"$@\"; }", *lines, "publish"])

    def passed(environment: dict[str, str]) -> list[str]:
        command = ["sh", "-c", script]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - its lines are under test
        assert not done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("sasl.password=")]

    in_file = {"WORKER_KAFKA__SASL_PASSWORD_FILE": str(file), "PATH": os.environ["PATH"]}
    assert passed(in_file) == ["sasl.password=from the file"]
    assert passed({"WORKER_KAFKA__SASL_PASSWORD": "from here"}) == ["sasl.password=from here"]


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
    """A terminal would obey it, and it could not be copied."""
    lines = sent(Encoding.JSON, EncodedRequest(JSON, '"\x9b31m"'.encode()), REPORT)

    assert lines[0] == "printf '\"\\302\\23331m\"' > request.json"
