"""W3C trace context as text: which span of which trace something belongs to.

It is in the tags of a user record inside an aggregated record, so that its payload stays as it is.
https://www.w3.org/TR/trace-context/
"""

import re
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
MAX_TRACESTATE_CHARACTERS: Final = 512
"""A longer one is left out: the standard asks for no more to be passed on."""

_FORM: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_SAMPLED: Final = 0x01


class TraceContext(NamedTuple):
    """The two headers of W3C."""

    traceparent: str
    """``00-trace id-span id-flags``, in hexadecimal."""
    tracestate: str = ""
    """What the tracing systems add; empty: nothing."""

    @property
    def is_sampled(self) -> bool:
        """Whether it is valid, and its trace is recorded."""
        parent = self.traceparent
        return _FORM.fullmatch(parent) is not None and bool(int(parent[-2:], 16) & _SAMPLED)
