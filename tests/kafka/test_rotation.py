"""A password that changes while a worker runs: once its file is changed too, a new start is enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.kafka.cluster import MORTAL, TIMEOUT
from tests.kafka.fixtures import or_skip
from tests.kafka.guarded import PASSWORD, USER, GuardedKafka
from tests.kafka.scene import Scene, raw
from tests.kafka.test_security import rights

NEW_PASSWORD = b"another-secret"


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """A broker of this module's own: its worker's password changes."""
    kafka = or_skip(lambda: GuardedKafka(tmp_path_factory.mktemp("certificates")))
    yield kafka
    kafka.remove()


def test_a_worker_whose_password_was_changed_ends_and_logs_in_with_the_new_one(
    guarded: GuardedKafka, tmp_path: Path
) -> None:
    """Open connections stay. After the broker's restart it would try the old password for ever."""
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    door = guarded.scram()
    del door["KAFKA__SASL_PASSWORD"]
    settings = {**door, "KAFKA__SASL_PASSWORD_FILE": str(secret)}
    with Scene(guarded.cluster, tmp_path, settings, session=MORTAL) as scene:
        without_file = {name: value for name, value in scene.settings.items() if not name.endswith("_FILE")}
        guarded.grant(rights({**without_file, "KAFKA__SASL_PASSWORD": PASSWORD}))
        replica = scene.replica()
        scene.publish([raw(number) for number in range(20)])
        scene.answers()

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        changed = UserScramCredentialUpsertion(USER, info, NEW_PASSWORD)
        for future in guarded.cluster.admin.alter_user_scram_credentials([changed]).values():
            future.result(TIMEOUT)
        secret.write_bytes(NEW_PASSWORD)
        scene.publish([raw(number) for number in range(20, 40)])
        scene.answers()
        assert replica.is_running
        guarded.broker.stop()
        guarded.broker.start()

        assert replica.exit_code() == 4, replica.log
        assert f"our login is not taken any more, and {secret} changed" in replica.log
        scene.publish([raw(number) for number in range(40, 60)])
        scene.replica()
        scene.verdict().expect_clean(repeats=20)
