"""Settings that contradict each other, and defaults that depend on another setting."""

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
LOGIN_THERE = {"REGISTRY__USERNAME": "me", "REGISTRY__PASSWORD": "hunter2"}
REGISTRY = {"RECORDS__ENCODING": "registry", "REGISTRY__URL": "https://registry"}


def variables(given: Mapping[str, str]) -> dict[str, str]:
    return {f"WORKER_{name}": value for name, value in given.items()}


def loaded(**given: str) -> Settings:
    """The minimum that starts a worker, with these settings."""
    return load(None, LEAST | variables(given))


ONCE = {"DELIVERY__GUARANTEE": "exactly_once"}
TLS = {"KAFKA__SECURITY_PROTOCOL": "SSL"}
LOGIN = {"KAFKA__SECURITY_PROTOCOL": "SASL_SSL"}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("KAFKA__REQUEST_TOPICS", {"KAFKA__REQUEST_TOPICS": "a,a"}),
        ("KAFKA__RESPONSE_TOPIC", {"KAFKA__RESPONSE_TOPIC": "requests"}),
        ("KAFKA__DEAD_LETTER_TOPIC", {"KAFKA__DEAD_LETTER_TOPIC": "answers"}),
        ("KAFKA__REPLY_TOPICS", {"KAFKA__REPLY_TOPICS": "mine,requests"}),
        ("KAFKA__SECURITY_PROTOCOL", {"KAFKA__BOOTSTRAP_SERVERS": "kafka:9092"}),
        *(
            ("KAFKA__BOOTSTRAP_SERVERS", {"KAFKA__BOOTSTRAP_SERVERS": servers})
            for servers in ("localhost:kafka", "[::1]:65536", "localhost:1;localhost:2", "localhost:1,")
        ),
        ("KAFKA__SSL_CA_LOCATION", {"KAFKA__SSL_CA_LOCATION": "/etc"}),
        ("KAFKA__SSL_CA_LOCATION", TLS | {"KAFKA__SSL_CA_LOCATION": "/nowhere.pem"}),
        ("KAFKA__SSL_CERTIFICATE_LOCATION", TLS | {"KAFKA__SSL_CERTIFICATE_LOCATION": "/etc"}),
        ("KAFKA__SASL_MECHANISM", LOGIN),
        ("KAFKA__SASL_MECHANISM", {"KAFKA__SASL_MECHANISM": "PLAIN"}),
        ("KAFKA__SASL_PASSWORD", LOGIN | {"KAFKA__SASL_MECHANISM": "PLAIN", "KAFKA__SASL_USERNAME": "u"}),
        ("KAFKA__OAUTH_TOKEN_ENDPOINT_URL", OAUTH),
        (
            "KAFKA__SASL_USERNAME",
            OAUTH | {"KAFKA__OAUTH_TOKEN_ENDPOINT_URL": "https://idp", "KAFKA__SASL_USERNAME": "u"},
        ),
        ("BATCHING__MAX_INFLIGHT_BYTES", {"BATCHING__LANES": "3"}),
        ("MODEL__MEMORY_LIMIT", {"MODEL__HOST": "thread", "MODEL__MEMORY_LIMIT": "1073741824"}),
        ("MODEL__HOST", {"MODEL__HOST": "thread", "MODEL__PATH": "model.py"}),
        ("BATCHING__LANES", {"MODEL__HOST": "thread", "BATCHING__LANES": "2"}),
        ("DELIVERY__TRANSACTIONAL_ID", {"DELIVERY__TRANSACTIONAL_ID": "a"}),
        ("DELIVERY__COMMIT_INTERVAL_MS", ONCE | {"DELIVERY__COMMIT_INTERVAL_MS": "2501"}),
        ("DELIVERY__ORDER", ONCE | {"DELIVERY__ORDER": "key"}),
        ("STATE__TTL_S", {"STATE__TTL_S": "5"}),
        ("KAFKA__REQUEST_TOPICS", STATE | {"KAFKA__REQUEST_TOPICS": "a,b"}),
        ("KAFKA__CHANGELOG_TOPIC", STATE | {"KAFKA__CHANGELOG_TOPIC": "answers"}),
        ("DELIVERY__GUARANTEE", STORE | ONCE),
        ("REGISTRY__URL", {"RECORDS__ENCODING": "registry"}),
        ("REGISTRY__URL", {"REGISTRY__URL": "https://registry"}),
        ("REGISTRY__URL", REGISTRY | {"REGISTRY__URL": "http://registry:8081"}),
        ("REGISTRY__USERNAME", REGISTRY | {"REGISTRY__USERNAME": "me"}),
        ("REGISTRY__USERNAME", REGISTRY | {"REGISTRY__PASSWORD": "hunter2"}),
        ("REGISTRY__TOKEN", REGISTRY | LOGIN_THERE | {"REGISTRY__TOKEN": "hunter2"}),
        ("REGISTRY__TOKEN", REGISTRY | {"REGISTRY__TOKEN": "hunter2\nhunter3"}),
        ("REGISTRY__SSL_CA_LOCATION", REGISTRY | {"REGISTRY__SSL_CA_LOCATION": "/nowhere.pem"}),
        ("REGISTRY__SSL_CERTIFICATE_LOCATION", REGISTRY | {"REGISTRY__SSL_CERTIFICATE_LOCATION": "/etc"}),
        (
            "REGISTRY__SSL_CA_LOCATION",
            REGISTRY | {"REGISTRY__URL": "http://localhost:8081", "REGISTRY__SSL_CA_LOCATION": "/etc"},
        ),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(name: str, given: dict[str, str]) -> None:
    """The refusal is one line that names the variable to change."""
    [line] = refused(variables(given))

    assert line.startswith(f"WORKER_{name}: ")
    assert "hunter" not in line


@pytest.mark.parametrize("given", [{}, LOGIN_THERE, {"REGISTRY__TOKEN": "hunter2"}])
def test_a_registry_may_be_plain_on_this_machine_or_where_that_is_allowed(given: dict[str, str]) -> None:
    """This is the rule for brokers. Each login goes with it."""
    plain = REGISTRY | given | {"REGISTRY__URL": "http://registry:8081", "KAFKA__ALLOW_PLAINTEXT": "true"}

    for settings in (loaded(**REGISTRY | given | {"REGISTRY__URL": "http://127.0.0.1:8081"}), loaded(**plain)):
        assert settings.registry is not None
        assert settings.registry.register
    assert loaded().registry is None


@pytest.mark.parametrize(
    "servers",
    ["localhost:9092", "localhost", "127.0.0.1:1,127.0.0.2:2", "[::1]:9092", "::1", "PLAINTEXT://127.0.0.1:1"],
)
def test_plaintext_is_fine_on_this_machine(servers: str) -> None:
    """Loopback crosses no network."""
    assert loaded(KAFKA__BOOTSTRAP_SERVERS=servers).kafka.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("url", ["http://idp/token", "http://127.0.0.1.idp/token", "http://idp:443/token?https://"])
def test_a_secret_goes_to_the_issuer_of_tokens_encrypted(url: str) -> None:
    """The setting that allows plain connections to brokers allows this one, too."""
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
    """Without a scheme the client takes http. The live page shows the other replicas' addresses to everyone."""
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
    """The client accepts both: a login would be shown, an option could turn checks off. The message repeats neither."""
    [line] = refused(variables(STORE | {"STATE__STORE": address}))

    assert line.startswith("WORKER_STATE__STORE: is no address; write redis://host:6379/0")
    assert "hidden" not in line


@pytest.mark.parametrize("host", ["10.0.0.5", "valkey:6379", "localhost.example.com:6379/0", "[fd00::1]:6379"])
def test_a_store_in_clear_is_on_this_machine_or_allowed(host: str) -> None:
    """This is the rule for brokers: the content of requests and a login would cross the network."""
    given = STORE | {"STATE__STORE": f"redis://{host}", "STATE__STORE_PASSWORD": "hidden"}

    [line] = refused(variables(given))

    assert line.startswith(f"WORKER_STATE__STORE: redis://{host} would cross the network unencrypted; use rediss://")
    assert loaded(**given | {"STATE__STORE": f"rediss://{host}"}).state.store == f"rediss://{host}"
    assert loaded(**given, KAFKA__ALLOW_PLAINTEXT="1").state.store == f"redis://{host}"
    assert loaded(**STORE | {"STATE__STORE": "redis://127.9.9.9/1"}).state.store == "redis://127.9.9.9/1"


def test_defaults_that_hang_on_another_setting() -> None:
    """A value that is set overrides them. States in a store have no topic, and are at least once."""
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
