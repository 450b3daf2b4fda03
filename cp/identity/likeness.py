"""Roots that Envoy takes for one another: they have one subject, and one of them has no SubjectKeyIdentifier.

Envoy looks for the issuer of a certificate by its name, takes the first that what the certificate says of its issuer
does not rule out, and looks no further if that one has not signed it. A root without an identifier is ruled out by its
serial number alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509

from cp.identity.authority import fingerprint_of
from cp.identity.certificates import certificates_in
from cp.identity.security import TrustBundle
from cp.identity.trust import TrustRecord

_MOST_REMEMBERED: Final = 256


@dataclass(frozen=True, slots=True)
class RootLikeness:
    """By what Envoy knows a root."""

    fingerprint: str
    subject: str
    is_identified: bool

    def is_taken_for(self, other: RootLikeness) -> bool:
        is_named_alike = self.subject == other.subject and self.fingerprint != other.fingerprint
        return is_named_alike and not (self.is_identified and other.is_identified)


def has_nameless_twin(certificate: x509.Certificate, bundles: Iterable[TrustBundle]) -> bool:
    """Whether somebody trusted has the name of an issuer, and no identifier that tells the two apart."""
    own = _likeness(certificate)
    return any(
        not other.is_identified and own.is_taken_for(other)
        for bundle in bundles
        for other in roots_in(bundle.certificates)
    )


def alike(roots: Iterable[RootLikeness], rivals: Iterable[RootLikeness]) -> Iterator[RootLikeness]:
    """Those roots that are taken for one of their rivals."""
    known = tuple(rivals)
    return (root for root in roots if any(root.is_taken_for(other) for other in known))


@lru_cache(maxsize=_MOST_REMEMBERED)
def roots_in(text: str) -> tuple[RootLikeness, ...]:
    """The certificates of a text in PEM."""
    return tuple(map(_likeness, certificates_in(text)))


def _likeness(certificate: x509.Certificate) -> RootLikeness:
    return RootLikeness(fingerprint_of(certificate), certificate.subject.rfc4514_string(), _is_identified(certificate))


def _is_identified(certificate: x509.Certificate) -> bool:
    try:
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except (x509.ExtensionNotFound, ValueError):
        return False
    return True


def takes_over(record: TrustRecord, root: str) -> bool:
    """Whether a root, in PEM, is new and without an identifier, and has the name of the one that signs.

    Certificates that were issued before do not say the serial number of their issuer, so it is not ruled out.
    """
    signer = record.root(record.signer)
    [new, *_] = roots_in(root) or (None,)
    if signer is None or new is None or new.is_identified or new.fingerprint == signer.fingerprint:
        return False
    return any(new.is_taken_for(before) and before.is_identified for before in roots_in(signer.certificate)[:1])
