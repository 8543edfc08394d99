"""Signatures, as AWS published some and as botocore makes them."""

import random
import string
from calendar import timegm
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from kinesis_spout.kinesis.wire.sigv4 import RequestTemplate, Scope, SigningSecond

SUITE = ReadOnlyCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)
SUITE_TIME = timegm((2015, 8, 30, 12, 36, 0))
HOST = {"Host": "example.amazonaws.com"}
FORM = "application/x-www-form-urlencoded"
PUBLISHED = {
    "get-vanilla": (
        ("GET", "/", HOST, b""),
        "host;x-amz-date",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        ("POST", "/", HOST, b""),
        "host;x-amz-date",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-vanilla-query-order-key-case": (
        ("GET", "/?Param2=value2&Param1=value1", HOST, b""),
        "host;x-amz-date",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "post-x-www-form-urlencoded": (
        ("POST", "/", HOST | {"Content-Type": FORM}, b"Param1=value1"),
        "content-type;host;x-amz-date",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "get-header-value-trim": (
        ("GET", "/", HOST | {"My-Header1": " value1", "My-Header2": ' "a   b   c"'}, b""),
        "host;my-header1;my-header2;x-amz-date",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
}
"""AWS' test suite of Signature Version 4: https://docs.aws.amazon.com/general/latest/gr/signature-v4-test-suite.html"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_signatures_are_those_that_aws_published(name: str) -> None:
    (method, target, headers, body), signed, signature = PUBLISHED[name]
    template = RequestTemplate(method, target, headers, Scope("us-east-1", "service"))

    assert SigningSecond(template, SUITE, SUITE_TIME).authorization(body) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={signed}, Signature={signature}"
    )


def test_thousands_of_requests_are_signed_as_botocore_signs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for number in range(3_000):
        now = chance.randrange(4_000_000_000)
        monkeypatch.setattr(
            botocore.auth, "get_current_datetime", lambda now=now: datetime.fromtimestamp(now, UTC)
        )
        credentials = ReadOnlyCredentials(
            _text(chance, string.ascii_uppercase, 20),
            _text(chance, string.printable, 40),
            chance.choice((None, _text(chance, string.ascii_letters + "/+=", 300))),
        )
        scope = Scope(chance.choice(("us-east-1", "cn-north-1", "eu-isoe-west-1")), "kinesis")
        template, url = _random_place(chance, scope)
        body = chance.randbytes(chance.randrange(400))
        request = AWSRequest(template.method, url, headers=dict(template.headers), data=body)
        SigV4Auth(credentials, scope.service, scope.region).add_auth(request)

        second = SigningSecond(template, credentials, now)

        where = f"request {number} of seed {seed}"
        assert second.authorization(body) == request.headers["Authorization"], where
        assert second.headers["X-Amz-Date"] == request.headers["X-Amz-Date"], where
        assert second.headers.get("X-Amz-Security-Token") == request.headers.get("X-Amz-Security-Token"), (
            where
        )


def _text(chance: random.Random, letters: str, length: int) -> str:
    return "".join(chance.choices(letters, k=chance.randrange(1, length)))


def _random_place(chance: random.Random, scope: Scope) -> tuple[RequestTemplate, str]:
    host = chance.choice(
        (
            "kinesis.us-east-1.amazonaws.com",
            "111122223333.data-kinesis.eu-west-1.api.aws",
            "127.0.0.1",
            "[::1]",
            "[2001:db8::8:800:200c:417a]",
            "localhost",
        )
    )
    scheme, port = chance.choice((("https", ""), ("http", ""), ("http", ":4567"), ("https", ":8443")))
    path = chance.choice(("/", "/a/b", "/a%20b/", "/a/../b", "//x", "/~u/-_.é", "/a*b"))
    query = chance.choice(("", "?b=2&a=1", "?a=2&a=1", "?flag&x=%2F", "?x=a=b"))
    headers = {
        "Host": host + port,
        "Content-Type": chance.choice(("application/x-amz-json-1.1", "application/x-amz-cbor-1.1")),
        "X-Amz-Target": f"Kinesis_20131202.{_text(chance, string.ascii_letters, 20)}",
        "User-Agent": _text(chance, string.ascii_letters + " /#", 200),
    }
    for _ in range(chance.randrange(4)):
        name = _text(chance, string.ascii_lowercase + "-", 12)
        headers.setdefault(f"Z{name}", f" {_text(chance, string.ascii_letters + '  ', 30)} ")
    return RequestTemplate("POST", path + query, headers, scope), f"{scheme}://{host}{port}{path}{query}"


def test_the_scope_of_a_request_is_the_one_that_botocore_signed_it_for() -> None:
    request: Any = AWSRequest("POST", "https://kinesis.eu-west-1.amazonaws.com/", data=b"")
    SigV4Auth(ReadOnlyCredentials("A/B", "s", None), "kinesis", "eu-west-1").add_auth(request)

    assert Scope.of(request.headers["Authorization"]) == Scope("eu-west-1", "kinesis")


@pytest.mark.parametrize(
    "other",
    [
        "",
        "Bearer token",
        "AWS4-ECDSA-P256-SHA256 Credential=A/20150830/kinesis/aws4_request, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=A/20150830/x, SignedHeaders=host, Signature=0",
    ],
)
def test_a_request_that_is_signed_in_another_way_has_no_scope(other: str) -> None:
    assert Scope.of(other) is None


def test_what_signs_shows_no_secret() -> None:
    template = RequestTemplate("POST", "/", HOST, Scope("us-east-1", "kinesis"))
    second = SigningSecond(template, ReadOnlyCredentials("AKIA", "hush-key", "hush-token"), 0)

    assert "hush" not in repr(second)
    assert "hush" not in f"{template}"
