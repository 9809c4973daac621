"""The options of `publish`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from worker.terminal.command_options import AskedModel, Brokers, Config, argument, flag, option


@dataclass(frozen=True, kw_only=True)
class PublishOrder:
    """Publish requests, and with --wait see them answered.

    A line with `inputs` is a request, published as it stands.
    One with `value` is any record: `key`, `headers` and `value`, or these with `_base64` for bytes.
    """

    file: str | None = argument(None, "JSON lines; - reads them from standard input.", "FILE")
    random: int | None = option(None, "Instead of a file: make N requests up for the model.", "N", min=1)
    topic: str | None = option(None, "The topic; otherwise the settings' only request topic.", "TOPIC")
    key: str | None = option(
        None, "Key of requests without one of their own; {n} in it is the request's number.", "TEXT"
    )
    rate: float | None = option(None, "Requests a second, steadily; else as fast as can be.", "N", min=0.001)
    wait: bool = flag(
        "--wait",
        "Wait for the answers to these very requests, and say how long they took. Exit code 7 if one is an "
        "error or missing.",
    )
    timeout: float | None = option(
        None, "With --wait: give up when no answer comes for so long; else for 30 s.", "SECONDS", min=0.1
    )
    encoding: Literal["rows", "json", "protobuf", "binary"] | None = option(
        None,
        "With --random: rows (if the model takes them, the default), json, protobuf or binary.",
        "NAME",
        show_default=False,
    )
    model: AskedModel = None
    as_json: bool = flag("--json", "The result as one line of JSON.")
    config: Config = None
    bootstrap_servers: Brokers = None
