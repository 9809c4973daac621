"""Requests to copy into a shell: one row in each encoding, sent by kcat with this deployment's settings.

Pure. They hold no secret: the shell reads it where the worker does, in the environment or in a file named there.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from worker.codecs.examples import EncodedRequest, Encoding
from worker.core.secrets import MASK
from worker.kafka.client.config import SECURITY

# A value that is no longer stands in the command itself; a longer one is fetched from the JSON report.
SHORT_VALUE = 400
# Columns of a line of options, two of them for the screen's margin, four for the line's own.
OPTIONS_WIDTH = 66

KINDS = {
    Encoding.JSON: "JSON",
    Encoding.ROWS: "raw rows",
    Encoding.PROTOBUF: "protobuf",
    Encoding.BINARY: "binary data behind a JSON head",
}

# What the wire contract asks of publishers: a key keeps its partition, and its order there.
_ORDERLY = ("-X partitioner=murmur2_random", "-X enable.idempotence=true")

# Options that go with a setting of this value, and have no setting of their own.
_ALONG = {
    ("SASL_MECHANISM", "OAUTHBEARER"): "sasl.oauthbearer.method=oidc",
    ("INSECURE_TLS", "true"): "enable.ssl.certificate.verification=false",
}


def publish_function(values: Mapping[str, str]) -> list[str]:
    """The lines of a shell function `publish`, so that what differs between encodings stands out.

    `values` as the settings' text.
    """
    options = [f"-b {shlex.quote(values['WORKER_KAFKA__BOOTSTRAP_SERVERS'])}", *_ORDERLY]
    for setting, key in SECURITY.items():
        name = f"WORKER_KAFKA__{setting.upper()}"
        if (value := values.get(name)) and (setting, value) != ("security_protocol", "PLAINTEXT"):
            options.append(f"-X {key}={_secret(name) if value == MASK else shlex.quote(value)}")
    options += [
        f"-X {option}" for (name, value), option in _ALONG.items() if values.get(f"WORKER_KAFKA__{name}") == value
    ]
    topic = values["WORKER_KAFKA__REQUEST_TOPICS"].split(",")[0]
    options += [f"-t {topic} -k example", '"$@"']
    first, *more = _joined(options)
    lines = [f"publish() {{ kcat -P {first}", *(f"    {line}" for line in more)]
    return [f"{line} \\" for line in lines[:-1]] + [f"{lines[-1]}; }}"]


def _secret(variable: str) -> str:
    # An empty variable counts as not set, as for the worker.
    return f'"${{{variable}:-$(cat "${variable}_FILE")}}"'


def _joined(options: Sequence[str]) -> list[str]:
    """As many to a line as fit."""
    lines = [options[0]]
    for option in options[1:]:
        if len(lines[-1]) + len(option) < OPTIONS_WIDTH:
            lines[-1] += f" {option}"
        else:
            lines.append(option)
    return lines


def sent(encoding: Encoding, example: EncodedRequest, report_command: str) -> list[str]:
    """The lines that make the request and call `publish` with it. `report_command` prints the JSON report."""
    headers = " ".join(f"-H {name}={value.decode()}" for name, value in example.headers)
    # Some shells' echo takes a backslash for the beginning of something else. What is not printable cannot be copied.
    is_short = encoding is Encoding.JSON and len(example.value) <= SHORT_VALUE
    if is_short and b"\\" not in example.value and example.value.decode().isprintable():
        return [f"echo {shlex.quote(example.value.decode())} |", f"  publish {headers}"]
    file = f"request.{'json' if encoding is Encoding.JSON else 'bin'}"
    return [f"{_made(encoding, example.value, report_command)} > {file}", f"publish {headers} {file}"]


def _made(encoding: Encoding, value: bytes, report_command: str) -> str:
    """Most of a blank row is zeros, and they are at the end."""
    head = value.rstrip(b"\0")
    zeros = f"head -c {len(value) - len(head)} /dev/zero"
    if not head:
        return zeros
    if len(head) <= SHORT_VALUE:
        printed = f"printf '{''.join(map(_escaped, head))}'"
        return printed if head == value else f"{{ {printed}; {zeros}; }}"
    return f"{report_command} | jq -r .examples.{encoding.value}.value_base64 | base64 -d"


def _escaped(byte: int) -> str:
    """As any shell's printf reads it between single quotes."""
    is_plain = 32 <= byte < 127 and chr(byte) not in "'\\%"
    return chr(byte) if is_plain else f"\\{byte:03o}"
