"""Why a broker's certificate is not trusted: librdkafka says the same sentence whatever is wrong with it.

Shakes hands once more, with Python's TLS and the same authorities, and reads the verdict. Sends nothing.
"""

from __future__ import annotations

import socket
import ssl

from worker.settings import Connection

HANDSHAKE_TIMEOUT = 3.0  # seconds; librdkafka has just had its answer from there

# OpenSSL's X509_V_ERR_*
_NOT_YET, _EXPIRED, _REVOKED = 9, 10, 23
_OTHER_NAME = (62, 64)  # a host name, an IP address


def why_untrusted(kafka: Connection, host: str, port: int) -> str:
    """What is wrong with the certificate shown there, and what to do: the rest of a sentence about it."""
    verdict = _verdict(kafka, host, port)
    trust = "WORKER_KAFKA__SSL_CA_LOCATION to a PEM file with the authority that signed it"
    if verdict is None:
        return f"cannot be verified; set {trust}, and see that it names this host and has not expired"
    match verdict.verify_code:
        case code if code in _OTHER_NAME:
            return (
                f"is not for {host}; write the name that it is for in WORKER_KAFKA__BOOTSTRAP_SERVERS (and in the "
                "broker's advertised.listeners), or have it issued for this one too (subjectAltName)"
            )
        case code if code in (_EXPIRED, _NOT_YET):
            return f"{'has expired' if code == _EXPIRED else 'is not valid yet'}; renew it on the broker"
        case code if code == _REVOKED:
            return "has been revoked; renew it on the broker"
    given = f"of {kafka.ssl_ca_location}" if kafka.ssl_ca_location else "that this system trusts"
    return f"is signed by none of the authorities {given} ({verdict.verify_message}); set {trust}"


def _verdict(kafka: Connection, host: str, port: int) -> ssl.SSLCertVerificationError | None:
    """None where Python has no objection, or meets another failure."""
    ca = kafka.ssl_ca_location
    try:
        context = ssl.create_default_context(
            cafile=str(ca) if ca is not None and ca.is_file() else None,
            capath=str(ca) if ca is not None and ca.is_dir() else None,
        )
        with (
            socket.create_connection((host, port), HANDSHAKE_TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error
    except (OSError, ValueError):
        return None
