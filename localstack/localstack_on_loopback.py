# ruff: noqa: INP001 - run by LocalStack's own interpreter, not a package
"""Start LocalStack in host mode, reachable from this machine only.

LocalStack 4.14 reads the host of GATEWAY_LISTEN and then listens on every IPv4 interface all the same. It has no
access control, so the interface is filled in here.
"""

from functools import partial

from localstack.runtime.main import main  # type: ignore[import-not-found]
from twisted.internet import endpoints  # type: ignore[import-not-found]

endpoints.TCP4ServerEndpoint = partial(endpoints.TCP4ServerEndpoint, interface="127.0.0.1")

if __name__ == "__main__":
    main()
