"""The REGISTRY section: where the schemas of records are, and how we log in there. It exists only where it is set."""

from __future__ import annotations

import warnings
from pathlib import Path

from pydantic import Field, SecretStr

from worker.settings.value_types import Page, Section, Text

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", 'Field name "register"')  # an abstract class has a method of that name

    class RegistrySettings(Section):
        """The schema registry of the records, with RECORDS__ENCODING=registry."""

        url: Page = Field(description="Address of the schema registry: `https://registry:8081`.")
        subject: Text | None = Field(
            None, description="Subject of the records' schema where it is not `TOPIC-value`: `shop.Payment`."
        )
        register: bool = Field(True, description="Register the schema of the answers; `false`: it must be there.")
        username: Text | None = Field(None, description="Basic login: the user, or the API key.")
        password: SecretStr | None = Field(None, description="Basic login: the password.")
        token: SecretStr | None = Field(None, description="Bearer login: the token.")
        ssl_ca_location: Path | None = Field(None, description="Authorities to trust, in PEM; else the usual ones.")
        ssl_certificate_location: Path | None = Field(None, description="Mutual TLS: our certificate, a PEM file.")
        ssl_key_location: Path | None = Field(None, description="Mutual TLS: our private key, a PEM file.")
        ssl_key_password: SecretStr | None = Field(None, description="Mutual TLS: opens the private key.")
        cache_directory: Path | None = Field(
            None, description="A folder for schemas, so that a worker starts while the registry is away."
        )
        timeout_s: float = Field(10.0, ge=0.1, le=300, description="The longest that one answer may take.")
