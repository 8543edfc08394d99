"""A certificate for an endpoint on loopback, and the authority that signed it, made for one run.

Clients are given the authority, so they verify the endpoint as they verify AWS. RSA with 2,048 bits is what
Amazon's endpoints show; the key matters for a handshake only, of which a client makes few.
"""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

_DAY: Final = timedelta(days=1)
_AUTHORITY: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kinesis-spout benchmark authority")])
_ENDPOINT: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kinesis-spout benchmark endpoint")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files in PEM form."""

    authority: Path
    """What clients verify the endpoint with."""
    endpoint: Path
    """The endpoint's certificate, for 127.0.0.1, behind its private key."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say it to clients: the first to botocore, the second to OpenSSL and rustls."""
        return {"AWS_CA_BUNDLE": str(self.authority), "SSL_CERT_FILE": str(self.authority)}


def make_certificates(directory: Path) -> Certificates:
    """Make an authority and a certificate in a directory, valid for a day."""
    authority_key, endpoint_key = _new_key(), _new_key()
    usage = x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=True,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        _certificate(_AUTHORITY, authority_key, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    endpoint = (
        _certificate(_ENDPOINT, endpoint_key, authority_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    files = Certificates(authority=directory / "authority.pem", endpoint=directory / "endpoint.pem")
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    private_key = endpoint_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files.endpoint.touch(mode=0o600)
    files.endpoint.write_bytes(private_key + endpoint.public_bytes(serialization.Encoding.PEM))
    return files


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _certificate(
    subject: x509.Name, key: rsa.RSAPrivateKey, authority_key: rsa.RSAPrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_AUTHORITY)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
