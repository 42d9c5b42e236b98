"""A certificate authority for tests, and what it signs."""

import ssl
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from kernel.clock import utc_now


class Authority:
    """Signs certificates; its own is in a file, for those who trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _name("the tests' authority")
        self._certificate = self._sign(self._name, self._key, authority=True)
        self.path = folder / "authority.pem"
        self.path.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *, password: str = "") -> tuple[str, str]:
        """PEM texts of a new certificate for `name` and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        protection = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection).decode()
        return self._sign(_name(name), key).public_bytes(Encoding.PEM).decode(), text

    def server(self, name: str, *, asks: bool) -> ssl.SSLContext:
        """What a server called `name` uses; with `asks` it wants a certificate of this authority from clients."""
        certificate, key = self.issue(name)
        path = self._folder / f"{name}.pem"
        path.write_text(key + certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        if asks:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path)
        return context

    def trusted(self) -> ssl.SSLContext:
        """What a client uses that trusts this authority."""
        return ssl.create_default_context(cafile=str(self.path))

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool = False) -> x509.Certificate:
        now, text = utc_now(), name.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        made = x509.CertificateBuilder(
            self._name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1)
        )
        if authority:
            made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        else:
            made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(str(text))]), critical=False)
        return made.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
