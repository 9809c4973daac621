"""Certificates made for tests, as PEM files: an authority, and the ones it signs for servers and clients.

Kafka reads the same files as librdkafka does: one with key and certificate, one with the authority's certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
LOOPBACK = ipaddress.ip_address("127.0.0.1")


class Certificate(NamedTuple):
    """Three files: the certificate, its key, and (for Kafka, which wants one) both in one."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates, and writes them to `folder`. `path` is the file that trusts it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(self._name, self._key.public_key(), NOW + DAY).issuer_name(self._name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str, *, host: str | None = None, until: datetime.datetime = NOW + DAY) -> Certificate:
        """A certificate for CN=`name`, valid for 127.0.0.1 or else for `host`, and up to `until`."""
        key = ec.generate_private_key(ec.SECP256R1())
        address: x509.GeneralName = x509.IPAddress(LOOPBACK) if host is None else x509.DNSName(host)
        builder = _builder(_named(name), key.public_key(), until).issuer_name(self._name)
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Certificate(
            self._written(f"{name}.crt", certificate),
            self._written(f"{name}.key", private),
            self._written(f"{name}.pem", private + certificate),
        )

    def _written(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(content)
        return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 3 * DAY)
        .not_valid_after(until)
    )
