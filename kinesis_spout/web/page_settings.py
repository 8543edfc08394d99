"""The settings of the page: what it may show and change, and who may see it."""

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.http_address import HttpAddress

_MIN_TOKEN_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    host: str = "127.0.0.1"
    port: int = 8080
    allow_changes: bool = False
    show_data: bool = False
    masks: frozenset[str] = frozenset()
    """Names of fields in JSON data whose values are not shown."""
    token: str | None = field(default=None, repr=False)
    """The secret that a visitor has to know."""
    behind_proxy: bool = False
    """A proxy in front lets in only those who may, and says in a header who they are."""

    def __post_init__(self) -> None:
        """Refuse to show it to a network without asking who looks."""
        if not (is_loopback(self.host) or self.token or self.behind_proxy):
            raise InvalidConfig(
                f"http: expected an address of this machine alone, as 127.0.0.1:{self.port}, got "
                f"{self.host}:{self.port}: others could see and change everything; give --token-file FILE, or "
                "--behind-proxy where a proxy checks who they are"
            )

    @classmethod
    def of(cls, http: str, *, token_file: Path | None = None, **others: object) -> Self:
        host, port = parse_address(http)
        token = None if token_file is None else _read_token(token_file)
        return cls(host=host, port=port, token=token, **others)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        return f"http://{HttpAddress(self.host, self.port)}"

    def signed(self, name: str) -> str:
        """Sign a name, to prove later that it came with the token."""
        assert self.token is not None, "asked for only where there is one"
        return hmac.new(
            self.token.encode(), b"kinesis-spout web:" + name.encode(), hashlib.sha256
        ).hexdigest()

    def is_token(self, text: str) -> bool:
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, or a port alone, on this machine."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004 - the largest port
        raise InvalidConfig(f"http: expected HOST:PORT, as 127.0.0.1:8080, got {text!r}")
    return host, int(port)


def _read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"token_file: expected a file with a token, got {error}") from error
    if len(token) < _MIN_TOKEN_CHARS:
        raise InvalidConfig(
            f"token_file: expected {_MIN_TOKEN_CHARS} characters or more in {str(file)!r}, got {len(token)}: "
            "`openssl rand -hex 24` makes one"
        )
    return token
