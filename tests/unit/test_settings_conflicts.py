"""Settings that do not fit each other, and defaults that hang on another setting."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.test_settings import LEAST, refused
from worker.settings import Settings, load

OAUTH = {
    "KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA__SASL_MECHANISM": "OAUTHBEARER",
    "KAFKA__OAUTH_CLIENT_ID": "me",
    "KAFKA__OAUTH_CLIENT_SECRET": "hunter2",
}
STATE = {"STATE__TENSORS": '{"h_in": "h_out"}'}
STORE = STATE | {"STATE__STORE": "redis://localhost:6379/0"}


def variables(given: Mapping[str, str]) -> dict[str, str]:
    return {f"WORKER_{name}": value for name, value in given.items()}


def loaded(**given: str) -> Settings:
    """The least that starts, and these settings."""
    return load(None, LEAST | variables(given))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"KAFKA__REQUEST_TOPICS": "a,a"}, "WORKER_KAFKA__REQUEST_TOPICS: a is also in WORKER_KAFKA__REQUEST_TOPICS"),
        ({"KAFKA__RESPONSE_TOPIC": "requests"}, "WORKER_KAFKA__RESPONSE_TOPIC: requests is also in WORKER_KAFKA__REQ"),
        (
            {"KAFKA__DEAD_LETTER_TOPIC": "answers"},
            "WORKER_KAFKA__DEAD_LETTER_TOPIC: answers is also in WORKER_KAFKA__R",
        ),
        ({"KAFKA__REPLY_TOPICS": "mine,requests"}, "WORKER_KAFKA__REPLY_TOPICS: requests is also in WORKER_KAFKA__REQ"),
        (
            {"KAFKA__GROUP_PROTOCOL": "consumer", "KAFKA__SESSION_TIMEOUT_MS": "6000"},
            "WORKER_KAFKA__SESSION_TIMEOUT_MS: has no effect with a KIP-848 group, the broker sets it",
        ),
        ({"KAFKA__BOOTSTRAP_SERVERS": "kafka:9092"}, "WORKER_KAFKA__SECURITY_PROTOCOL: PLAINTEXT to kafka:9092"),
        *(
            ({"KAFKA__BOOTSTRAP_SERVERS": servers}, f"WORKER_KAFKA__BOOTSTRAP_SERVERS: {told!r} is no broker")
            for servers, told in (
                ("localhost:kafka", "localhost:kafka"),
                ("[::1]:65536", "[::1]:65536"),
                ("::1:9092", "::1:9092"),
                ("localhost:1;localhost:2", "localhost:1;localhost:2"),
                ("localhost:1,", ""),
            )
        ),
        (
            {"KAFKA__BOOTSTRAP_SERVERS": "SSL://localhost:1"},
            "WORKER_KAFKA__BOOTSTRAP_SERVERS: 'SSL://localhost:1' is no broker",
        ),
        ({"KAFKA__SSL_CA_LOCATION": "/etc"}, "WORKER_KAFKA__SSL_CA_LOCATION: has no effect with PLAINTEXT; set"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CA_LOCATION": "/nowhere.pem"},
            "WORKER_KAFKA__SSL_CA_LOCATION: there is no file /nowhere.pem",
        ),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CERTIFICATE_LOCATION": "/etc"},
            "WORKER_KAFKA__SSL_CERTIFICATE_LOCATION: goes with SSL_KEY_LOCATION",
        ),
        ({"KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}, "WORKER_KAFKA__SASL_MECHANISM: SASL_SSL needs one"),
        ({"KAFKA__SASL_MECHANISM": "PLAIN"}, "WORKER_KAFKA__SASL_MECHANISM: has no effect with PLAINTEXT; set WORKER"),
        (
            {"KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "KAFKA__SASL_MECHANISM": "PLAIN", "KAFKA__SASL_USERNAME": "u"},
            "WORKER_KAFKA__SASL_PASSWORD: PLAIN needs it",
        ),
        (OAUTH, "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: OAUTHBEARER needs it"),
        (
            {**OAUTH, "KAFKA__OAUTH_TOKEN_ENDPOINT_URL": "https://idp", "KAFKA__SASL_USERNAME": "u"},
            "WORKER_KAFKA__SASL_USERNAME: has no effect with OAUTHBEARER; set another WORKER_KAFKA__SASL_MECHANISM",
        ),
        ({"BATCHING__LANES": "3"}, "WORKER_BATCHING__MAX_INFLIGHT_BYTES: must hold 5 batches"),
        (
            {"BATCHING__LINGER_MS": "5", "BATCHING__LATENCY_BUDGET_MS": "50"},
            "WORKER_BATCHING__LATENCY_BUDGET_MS: has no effect with a linger of 5 ms; set WORKER_BATCHING__LINGER_MS",
        ),
        (
            {"DELIVERY__TRANSACTIONAL_ID": "a"},
            "WORKER_DELIVERY__TRANSACTIONAL_ID: has no effect with at_least_once; set",
        ),
        (
            {"DELIVERY__GUARANTEE": "exactly_once", "DELIVERY__COMMIT_INTERVAL_MS": "2501"},
            "WORKER_DELIVERY__COMMIT_INTERVAL_MS: 2501 leaves too little",
        ),
        ({"DELIVERY__GUARANTEE": "exactly_once", "DELIVERY__ORDER": "key"}, "WORKER_DELIVERY__ORDER: key lets answers"),
        (
            {"MODEL__DEVICE": "cpu", "MODEL__PROVIDERS": "CPUExecutionProvider"},
            "WORKER_MODEL__DEVICE: cpu has no effect with WORKER_MODEL__PROVIDERS, which says where",
        ),
        ({"STATE__TTL_S": "5"}, "WORKER_STATE__TTL_S: has no effect without WORKER_STATE__TENSORS"),
        ({"KAFKA__CHANGELOG_TOPIC": "c"}, "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect without WORKER_STATE__TENSORS"),
        (STATE | {"KAFKA__REQUEST_TOPICS": "a,b"}, "WORKER_KAFKA__REQUEST_TOPICS: with state there is one request"),
        (STATE | {"KAFKA__CHANGELOG_TOPIC": "answers"}, "WORKER_KAFKA__CHANGELOG_TOPIC: answers is also in WORKER"),
        (STATE | {"STATE__INITIAL": "nowhere.npy"}, "WORKER_STATE__INITIAL: there is no file nowhere.npy"),
        (STATE | {"STATE__KEY_PREFIX": "x"}, "WORKER_STATE__KEY_PREFIX: has no effect without WORKER_STATE__STORE"),
        (STORE | {"DELIVERY__GUARANTEE": "exactly_once"}, "WORKER_DELIVERY__GUARANTEE: a store outside has no part"),
        (STORE | {"STATE__DIRECTORY": "states"}, "WORKER_STATE__DIRECTORY: has no effect with WORKER_STATE__STORE"),
        (
            STORE | {"KAFKA__CHANGELOG_TOPIC": "c"},
            "WORKER_KAFKA__CHANGELOG_TOPIC: has no effect with WORKER_STATE__STORE",
        ),
        (STORE | {"STATE__STORE_CA_LOCATION": "a"}, "WORKER_STATE__STORE_CA_LOCATION: has no effect with redis://"),
        (
            STORE | {"STATE__STORE": "rediss://host", "STATE__STORE_CA_LOCATION": "nowhere.pem"},
            "WORKER_STATE__STORE_CA_LOCATION: there is no file nowhere.pem",
        ),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(given: dict[str, str], told: str) -> None:
    """One line that names the variable to change."""
    [line] = refused(variables(given))

    assert line.startswith(told)


@pytest.mark.parametrize(
    "servers",
    ["localhost:9092", "localhost", "127.0.0.1:1,127.0.0.2:2", "[::1]:9092", "::1", "PLAINTEXT://127.0.0.1:1"],
)
def test_plaintext_is_fine_on_this_machine(servers: str) -> None:
    """Loopback crosses no network."""
    assert loaded(KAFKA__BOOTSTRAP_SERVERS=servers).kafka.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("url", ["http://idp/token", "http://127.0.0.1.idp/token", "http://idp:443/token?https://"])
def test_a_secret_goes_to_the_issuer_of_tokens_encrypted(url: str) -> None:
    """Or it is allowed to go as it is, by the setting that allows plain connections to brokers."""
    given = {**OAUTH, "KAFKA__OAUTH_TOKEN_ENDPOINT_URL": url}

    [line] = refused(variables(given))

    assert line.startswith("WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL: the client's secret would go to ")
    assert "hunter2" not in line
    assert loaded(**given, KAFKA__ALLOW_PLAINTEXT="true").kafka.oauth_token_endpoint_url == url


@pytest.mark.parametrize(
    "url",
    [
        "idp/token",
        "ftp://idp/token",
        "https://",
        "https://me:hunter2@idp/token",
        "http://127.0.0.1\\@idp",
        "http://a b",
    ],
)
def test_no_address_of_a_page_is_guessed_at_or_has_a_login(url: str) -> None:
    """The client takes http where there is no scheme. The live page shows the other replicas' addresses to all."""
    lines = refused(variables({**OAUTH, "KAFKA__OAUTH_TOKEN_ENDPOINT_URL": url, "TELEMETRY__REPLICAS": url}))

    assert [line.partition(":")[0] for line in lines] == [
        "WORKER_KAFKA__OAUTH_TOKEN_ENDPOINT_URL",
        "WORKER_TELEMETRY__REPLICAS",
    ]
    assert all("is no address of a web page without a login" in line for line in lines)
    assert "hunter2" not in str(lines)


@pytest.mark.parametrize(
    "address",
    [
        *("http://hidden", "redis://user:hidden@/0", "rediss://hidden:6379?password=hidden", "unix:///hidden"),
        *(
            "rediss://hidden?ssl_cert_reqs=none",
            "redis://localhost/hidden",
            "redis://",
            "redis://localhost:6379/0 hidden",
        ),
    ],
)
def test_the_address_of_a_store_has_neither_a_login_nor_options(address: str) -> None:
    """The client takes both there. It would be shown, or the certificate not looked at. The message repeats nothing."""
    [line] = refused(variables(STORE | {"STATE__STORE": address}))

    assert line.startswith("WORKER_STATE__STORE: is no address; write redis://host:6379/0")
    assert "hidden" not in line


@pytest.mark.parametrize("host", ["10.0.0.5", "valkey:6379", "localhost.example.com:6379/0", "[fd00::1]:6379"])
def test_a_store_in_clear_is_on_this_machine_or_allowed(host: str) -> None:
    """As brokers are: what requests bring crosses the network, and a login."""
    given = STORE | {"STATE__STORE": f"redis://{host}", "STATE__STORE_PASSWORD": "hidden"}

    [line] = refused(variables(given))

    assert line.startswith(f"WORKER_STATE__STORE: redis://{host} would cross the network unencrypted; use rediss://")
    assert loaded(**given | {"STATE__STORE": f"rediss://{host}"}).state.store == f"rediss://{host}"
    assert loaded(**given, KAFKA__ALLOW_PLAINTEXT="1").state.store == f"redis://{host}"
    assert loaded(**STORE | {"STATE__STORE": "redis://127.9.9.9/1"}).state.store == "redis://127.9.9.9/1"


def test_defaults_that_hang_on_another_setting() -> None:
    """Unless they are set. A store's states have no topic, and are at least once."""
    plain, once, several = (
        loaded(),
        loaded(DELIVERY__GUARANTEE="exactly_once"),
        loaded(BATCHING__MAX_BATCH_SIZE="65536"),
    )
    state, stored = loaded(**STATE), loaded(**STORE)
    own = loaded(**STATE, DELIVERY__GUARANTEE="at_least_once", KAFKA__CHANGELOG_TOPIC="mine")

    assert (plain.delivery.commit_interval_ms, once.delivery.commit_interval_ms) == (200, 100)
    assert (plain.batching.max_inflight_rows, several.batching.max_inflight_rows) == (131_072, 3 * 65_536)
    assert (plain.delivery.guarantee, plain.kafka.changelog_topic) == ("at_least_once", None)
    assert (state.delivery.guarantee, state.kafka.changelog_topic) == ("exactly_once", "group-state")
    assert (stored.delivery.guarantee, stored.kafka.changelog_topic) == ("at_least_once", None)
    assert (own.delivery.guarantee, own.kafka.changelog_topic) == ("at_least_once", "mine")
