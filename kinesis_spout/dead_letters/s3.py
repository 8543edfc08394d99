"""Dead letters on S3 and compatible stores, through PyArrow with what boto3 finds.

An object exists as a whole or not at all, so each write is one new object under its final name. Region,
endpoint (also FIPS and dual stack), credentials (also roles and profiles), CA bundle and proxies are found as
boto3 finds them; ``?region=`` and ``?endpoint_override=`` in the URL win. Every call is bounded: an endpoint that
does not answer is an error within seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.configprovider import ConfiguredEndpointProvider
from botocore.exceptions import BotoCoreError, ClientError
from botocore.utils import get_environ_proxies

from kinesis_spout.dead_letters.remote_files import RemoteFilesSink, fs
from kinesis_spout.kinesis.calls import said_by_boto3
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import DeadLetterError, InvalidConfig

CONNECT_SECONDS: Final = 5
REQUEST_SECONDS: Final = 20
TRIES: Final = 3

_PARAMETERS: Final = ("region", "endpoint_override")
_DEFAULT_REGION: Final = "us-east-1"


class _Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None


class S3Sink(RemoteFilesSink):
    """The objects below ``s3://bucket/prefix``, with ``?region=`` and ``?endpoint_override=`` if needed.

    ``session`` makes the boto3 session of the connection. Mutable: credentials are renewed. Raises InvalidConfig
    for an invalid URL.
    """

    def __init__(
        self, url: str, *, session: Callable[[], boto3.Session] = boto3.Session, clock: Clock | None = None
    ) -> None:
        address, self._bucket, self._prefix, self._parameters = _parsed(url)
        super().__init__(address, clock=clock)
        self._make_session = session
        self._session: boto3.Session | None = None
        self._used: _Credentials | None = None

    def check_writable(self) -> None:
        """Begin and abort an upload: that needs the bucket and permission to write, and leaves nothing."""
        key = f"{self._prefix}/.probe".lstrip("/")
        with self._translated("write to"), closing(self._client()) as client:
            upload = client.create_multipart_upload(Bucket=self._bucket, Key=key)
            client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload["UploadId"])

    def _create(self, name: str, data: bytes) -> None:
        file_system, directory = self._connected()
        with file_system.open_output_stream(f"{directory}/{name}") as stream:
            stream.write(data)

    def _names(self) -> list[str]:
        found = super()._names()
        # PyArrow reports a missing bucket as empty.
        if not found and self._connected()[0].get_file_info(self._bucket).type is fs.FileType.NotFound:
            raise DeadLetterError(f"expected the bucket of {self.address!r} to exist, found none")
        return found

    def _connected(self) -> tuple[fs.FileSystem, str]:
        credentials = self._credentials()
        if self._opened is None or self._used != credentials:
            directory = f"{self._bucket}/{self._prefix}".rstrip("/")
            self._opened, self._used = (self._connect(credentials), directory), credentials
        return self._opened

    @property
    def _region(self) -> str:
        return self._parameters.get("region") or self._aws().region_name or _DEFAULT_REGION

    @property
    def _endpoint(self) -> str | None:
        """The endpoint, if not AWS's: as boto3 finds it (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, profile)."""
        chosen = self._parameters.get("endpoint_override")
        if chosen is not None:
            return chosen if "://" in chosen else f"https://{chosen}"
        core = self._core
        if core.get_config_variable("ignore_configured_endpoint_urls"):
            return None
        endpoint: str | None = ConfiguredEndpointProvider(
            full_config=core.full_config, scoped_config=core.get_scoped_config(), client_name="s3"
        ).provide()
        return endpoint

    def _client(self) -> Any:
        return self._aws().client(
            "s3",
            region_name=self._region,
            endpoint_url=self._endpoint,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=REQUEST_SECONDS,
                retries={"total_max_attempts": TRIES, "mode": "standard"},
            ),
        )

    @property
    def _host_of_kind(self) -> str | None:
        """AWS's host for FIPS or dual stack, if boto3 calls one, for PyArrow. Else None."""
        with closing(self._client()) as client:
            kinds = client.meta.config
            if not (kinds.use_fips_endpoint or kinds.use_dualstack_endpoint):
                return None
            # The client's own endpoint_url is another: the bucket's region is not in it.
            address: str = client.generate_presigned_url("head_bucket", Params={"Bucket": self._bucket})
        return urlsplit(address).netloc.removeprefix(f"{self._bucket}.")

    def _route(self, address: str) -> dict[str, str]:
        """The CA bundle and the proxy of an address, as boto3 finds them: PyArrow looks for neither."""
        config: Any = self._core.get_default_client_config()
        proxies = (None if config is None else config.proxies) or get_environ_proxies(address)
        found = {
            "proxy_options": proxies.get(urlsplit(address).scheme),
            "tls_ca_file_path": self._core.get_config_variable("ca_bundle"),
        }
        return {name: value for name, value in found.items() if value}

    @property
    def _core(self) -> botocore.session.Session:
        core: botocore.session.Session = self._aws()._session  # noqa: SLF001 - boto3 does not show it
        return core

    def _aws(self) -> boto3.Session:
        if self._session is None:
            self._session = self._make_session()
        return self._session

    def _credentials(self) -> _Credentials:
        found = self._aws().get_credentials()
        frozen = None if found is None else found.get_frozen_credentials()
        if frozen is None or frozen.access_key is None or frozen.secret_key is None:
            raise DeadLetterError(
                f"expected AWS credentials for {self.address!r}, found none; set them as for boto3: environment, "
                "profile or role"
            )
        return _Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _connect(self, credentials: _Credentials) -> fs.S3FileSystem:
        chosen = self._endpoint
        of_aws = None if chosen else self._host_of_kind
        address = chosen or f"https://{self._bucket}.{of_aws or f's3.{self._region}.amazonaws.com'}"
        parts = urlsplit(address)
        return fs.S3FileSystem(
            access_key=credentials.access_key,
            secret_key=credentials.secret_key,
            session_token=credentials.token,
            region=self._region,
            scheme=parts.scheme,
            endpoint_override=parts.netloc if chosen else of_aws,
            force_virtual_addressing=not chosen,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
            **self._route(address),
        )

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, BotoCoreError, ClientError) as error:
            # The next try looks for credentials anew: another program may have renewed them.
            self._session = self._opened = None
            raise DeadLetterError(
                f"expected to {verb} {self.address!r}, got {said_by_boto3(error)}; check that the bucket exists, "
                f"its region ({self.address}?region=...), and the credentials' permissions there"
            ) from error


def _parsed(url: str) -> tuple[str, str, str, dict[str, str]]:
    """Return the URL without parameters, the bucket, the prefix, and the parameters."""
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(parameters) - set(_PARAMETERS))
    if "@" in parts.netloc:
        # Not shown: what is before the @ may be a secret.
        raise InvalidConfig(
            "dead_letters: expected s3://bucket/prefix without credentials, got some in the URL"
        )
    if not parts.netloc or unknown or parts.fragment:
        raise InvalidConfig(
            "dead_letters: expected s3://bucket/prefix, with ?region= and endpoint_override= if need be, "
            f"got {parts.scheme}://{parts.netloc}{parts.path}"
            + (f" with {', '.join(unknown)}" if unknown else "")
        )
    prefix = unquote(parts.path).strip("/")
    return f"s3://{parts.netloc}/{prefix}".rstrip("/"), parts.netloc, prefix, parameters
