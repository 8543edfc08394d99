"""Runs a test over both decoders of GetRecords replies: native and Python's.

``KINESIS_SPOUT_PURE_PYTHON=1 make test`` runs all tests over Python's alone.
"""

from typing import Any

import pytest

from kinesis_spout.kinesis import native


@pytest.fixture
def native_decoder() -> Any:
    if native.decoder is None:
        pytest.skip("the native decoder was not built (no C compiler), or KINESIS_SPOUT_PURE_PYTHON is set")
    return native.decoder


@pytest.fixture(params=["native", "python"])
def each_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "native":
        request.getfixturevalue("native_decoder")
    else:
        monkeypatch.setattr(native, "decoder", None)
