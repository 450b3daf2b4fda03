"""Keeps the certificate of a gRPC client fresh: asks for its secrets over ADS, as an Envoy does, and writes them down.

The control plane sends a new certificate in time, so there is nothing to do but to stay connected. What is sent is
accepted when it is in its files, since the control plane goes on with a rotation then. See record 0063.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.message import DecodeError

from cp.agent.certificate_folder import CertificateFolder, ClientSecrets
from cp.agent.next_attempt import AttemptedToken, next_attempt
from cp.agent.say import Say
from cp.client.credentials import Credentials
from cp.client.problem import Problem
from cp.model.registration import CERTIFICATES, FETCHED
from generators.envoy.names import mesh_authority, mesh_identity

_METHOD: Final = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
_TYPE: Final = f"type.googleapis.com/{Secret.DESCRIPTOR.full_name}"
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 30_000),  # else a control plane that vanished would not be missed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else gRPC's own pauses would come to ours
)
_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_NEWS_EVERY: Final = 60.0
_SILENCE: Final = 10.0
"""Seconds after which a control plane that has sent nothing has nothing to send."""

_LATE: Final = 0.1
"""The part of its life at the end of which a certificate should have been replaced long ago."""


@dataclass(frozen=True, slots=True)
class ClientSecretSource:
    """Where a gRPC client gets its secrets from, and who it is there."""

    target: str
    """Host and port of the control plane's port for proxies."""

    over_tls: bool
    mesh: str
    node: str
    authorities: str = ""
    """Whom to trust to sign the certificate of the control plane, in PEM; empty: those that gRPC brings along."""

    fallbacks: tuple[str, ...] = ()
    """Where further control planes are, which have the same secrets."""

    @classmethod
    def of(cls, bootstrap: Any, mesh: str, authorities: str) -> ClientSecretSource:
        """As the bootstrap of the client says it."""
        server, *_ = bootstrap["xds_servers"]
        over_tls = server["channel_creds"][0]["type"] == "tls"
        target, *fallbacks = (known["server_uri"] for known in bootstrap["xds_servers"])
        return cls(target, over_tls, mesh, bootstrap["node"]["id"], authorities, tuple(fallbacks))

    @property
    def next(self) -> ClientSecretSource:
        """The same from the next control plane: this one, if there is no other."""
        target, *fallbacks = (*self.fallbacks, self.target)
        return replace(self, target=target, fallbacks=tuple(fallbacks))

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        channel = self._channel()
        try:
            yield channel
        finally:
            channel.close()

    def _channel(self) -> grpc.Channel:
        if not self.over_tls:
            return grpc.insecure_channel(self.target, _OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.authorities.encode() or None)
        return grpc.secure_channel(self.target, credentials, _OPTIONS)


class _Refused(Problem):
    """The control plane does not take the token."""


class SecretKeeper:
    """Writes what one client is sent, until it is told to end."""

    def __init__(
        self,
        source: ClientSecretSource,
        credentials: Credentials,
        folder: CertificateFolder,
        say: Say,
        chance: Callable[[], float],
    ) -> None:
        """`chance` is a random number from 0 to 1."""
        self._source, self._credentials, self._folder = source, credentials, folder
        self._say, self._chance = say, chance
        self._pause = _FIRST_PAUSE
        self._complaint, self._complained = "", 0.0
        self._leaf: x509.Certificate | None = None

    def run(self, ended: threading.Event, *, once: bool = False) -> None:
        """`once`: return as soon as there are files."""
        while not ended.is_set():
            token = AttemptedToken.of(self._credentials)
            try:
                for _ in self._received():
                    self._pause, self._complaint = _FIRST_PAUSE, ""
                    if once:
                        return
            except _Refused as refused:
                self._complain(f"{refused.message}; {next_attempt(self._credentials, _LONGEST_PAUSE)}")
                self._source = self._source.next
            except Problem as problem:
                self._complain(problem.message)
                self._source = self._source.next
            # Clients that lost one control plane do not come to the next one at the same moment.
            is_replaced = token.wait(self._pause * self._chance(), ended)
            self._pause = _FIRST_PAUSE if is_replaced else min(self._pause * 2, _LONGEST_PAUSE)

    def _received(self) -> Iterator[None]:
        """An element for each time that files were written, until the stream ends. Raises `Problem`."""
        token = self._credentials.current_token()  # which may have been replaced
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._source.channel() as channel, self._silence_told():
            stub: Any = channel.stream_stream(_METHOD)
            call = stub(iter(requests.get, None), metadata=metadata)
            stream = _SecretStream(self._source, requests)
            try:
                for data in call:
                    if stream.take(data, self._write):
                        yield
            except grpc.RpcError as error:
                raise _problem(self._source.target, error) from None
            finally:
                requests.put(None)
                call.cancel()

    def _write(self, client_secrets: ClientSecrets) -> None:
        leaf = _checked(client_secrets)
        self._folder.write(client_secrets)
        self._leaf = leaf
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uri = next(iter(names.get_values_for_type(x509.UniformResourceIdentifier)), "")
        self._say(f"{self._folder.path} has a certificate for {uri} until {leaf.not_valid_after_utc:%F %T} UTC")

    @contextmanager
    def _silence_told(self) -> Iterator[None]:
        """While this lasts: it is told once if a control plane that is connected has nothing to send."""
        before = self._leaf

        def tell() -> None:
            if self._leaf is before:
                self._complain(
                    f"the control plane has sent no certificate for {self._source.node}: mTLS is off in its mesh, "
                    "nobody signs yet, or it has no name to be certified (koguma lint)"
                )

        timer = threading.Timer(_SILENCE, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _complain(self, message: str) -> None:
        """Tell what keeps us from it: each thing once, and again after a while for as long as it lasts."""
        now = time.monotonic()
        if message != self._complaint or now - self._complained >= _NEWS_EVERY:
            self._complaint, self._complained = message, now
            self._say(f"{message}{self._urgency()}")

    def _urgency(self) -> str:
        """How long the present certificate lasts, where that is not long any more."""
        if self._leaf is None:
            return ""
        end, life = self._leaf.not_valid_after_utc, self._leaf.not_valid_after_utc - self._leaf.not_valid_before_utc
        left = end.timestamp() - time.time()
        if left <= 0:
            return f"; the certificate has expired at {end:%F %T} UTC"
        return f"; the certificate expires at {end:%F %T} UTC" if left < life.total_seconds() * _LATE else ""


class _SecretStream:
    """What was sent on one stream, and the answers to it."""

    def __init__(self, source: ClientSecretSource, requests: queue.SimpleQueue[bytes | None]) -> None:
        self._requests = requests
        self._identity, self._authority = mesh_identity(source.mesh), mesh_authority(source.mesh)
        self._secrets: dict[str, Secret] = {}
        self._written: ClientSecrets | None = None
        request = DiscoveryRequest(type_url=_TYPE, resource_names=(self._identity, self._authority))
        request.node.id = source.node
        request.node.metadata[CERTIFICATES] = FETCHED
        requests.put(request.SerializeToString())

    def take(self, data: bytes, write: Callable[[ClientSecrets], None]) -> bool:
        """Write what has come, if it is complete, and accept it. Returns whether something was written.

        Raises `Problem` if it cannot be written: then it is asked for again, on another stream.
        """
        try:
            response = DiscoveryResponse.FromString(data)
            is_written = self._written_from(response, write)
        except DecodeError:
            raise Problem("the control plane has sent something that is no response of ADS") from None
        self._accept(response)
        return is_written

    def _written_from(self, response: DiscoveryResponse, write: Callable[[ClientSecrets], None]) -> bool:
        for resource in response.resources:
            secret = Secret()
            if resource.Unpack(secret):
                self._secrets[secret.name] = secret
        identity, authority = self._secrets.get(self._identity), self._secrets.get(self._authority)
        if identity is None or authority is None:
            return False
        client_secrets = ClientSecrets(
            certificate=_content(identity.tls_certificate.certificate_chain),
            key=_content(identity.tls_certificate.private_key),
            authorities=_content(authority.validation_context.trusted_ca),
        )
        if client_secrets == self._written:
            return False
        write(client_secrets)
        self._written = client_secrets
        return True

    def _accept(self, response: DiscoveryResponse) -> None:
        request = DiscoveryRequest(
            type_url=_TYPE,
            version_info=response.version_info,
            response_nonce=response.nonce,
            resource_names=(self._identity, self._authority),
        )
        self._requests.put(request.SerializeToString())


def _content(source: Any) -> bytes:
    content: bytes = source.inline_bytes or source.inline_string.encode()
    return content


def _checked(client_secrets: ClientSecrets) -> x509.Certificate:
    """The certificate, if the key is its own and there are roots. Raises `Problem`."""
    try:
        leaf = x509.load_pem_x509_certificate(client_secrets.certificate)
        key = load_pem_private_key(client_secrets.key, None).public_key()
        x509.load_pem_x509_certificates(client_secrets.authorities)
    except (ValueError, TypeError):
        raise Problem("the control plane has sent a certificate, a key or roots that are not in PEM") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if leaf.public_key().public_bytes(*form) != key.public_bytes(*form):
        raise Problem("the control plane has sent a key that is not that of the certificate")
    return leaf


def _problem(target: str, error: Any) -> Problem:
    """What ended a stream, without anything that was sent on it."""
    if error.code() in _REFUSED:
        return _Refused(f"the control plane refuses to send certificates: {error.details()}")
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Problem(f"the control plane at {target} cannot be reached: {error.details()}")
    return Problem(f"the control plane at {target} has ended the stream: {error.details()}")
