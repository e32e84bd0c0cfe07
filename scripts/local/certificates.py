"""The certificate authorities that this machine trusts, for roots and images that are made on it."""

from __future__ import annotations

import ssl
from pathlib import Path

from scripts.errors import ToolMissing

# Debian and Ubuntu; Fedora and its kin; openSUSE; Alpine, macOS and the BSDs.
USUAL_PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

# In a Debian root. The tools that bring authorities of their own (pip in an environment, uv) are told of it.
DEBIAN_ENV = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), USUAL_PLACES[0])


def bundle() -> Path:
    """The machine's bundle in PEM: a RUN behind a TLS-inspecting proxy fails without it.

    First what Python's own TLS uses (SSL_CERT_FILE where it is set), then the places that systems use.

    Raises:
        ToolMissing: there is none.
    """
    for place in filter(None, (ssl.get_default_verify_paths().cafile, *USUAL_PLACES)):
        if Path(place).is_file():
            return Path(place)
    raise ToolMissing(
        "This machine has no bundle of certificate authorities.",
        "install the package ca-certificates, or set SSL_CERT_FILE to a bundle in PEM.",
    )
