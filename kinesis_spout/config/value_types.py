"""The types of settings: each says its range or its shape, and how a message calls that."""

from typing import Annotated, Final

from msgspec import Meta

MIB: Final = 1024 * 1024

STREAM_NAME: Final = r"[a-zA-Z0-9_.-]{1,128}"
_STREAM_ARN: Final = rf"arn:aws[a-z-]*:kinesis:[a-z0-9-]+:\d{{12}}:stream/{STREAM_NAME}"
_ROLE_ARN: Final = r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+"
_HOST: Final = r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}"
_CHROOT: Final = r"(/[^/,\s]+)+"
_ZOOKEEPER: Final = rf"embedded(:.+)?|{_HOST}(,{_HOST})*({_CHROOT})?"

StreamNameOrArn = Annotated[
    str,
    Meta(
        pattern=rf"\A({STREAM_NAME}|{_STREAM_ARN})\Z",
        title="a stream name (1 to 128 of a-z A-Z 0-9 _ . -) or a stream ARN",
    ),
]
AppName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.-]{1,128}\Z", title="1 to 128 of a-z A-Z 0-9 _ . -")]
ZooKeeperHosts = Annotated[
    str,
    Meta(
        pattern=rf"\A({_ZOOKEEPER})\Z",
        title="'embedded', 'embedded:<directory>' or 'host:port,host:port[/chroot]'",
    ),
]
ZooKeeperRoot = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9_.-]+\Z",
        title="letters, digits, '_', '.' and '-'; for a deeper place, give zookeeper a chroot",
    ),
]
RoleArn = Annotated[str, Meta(pattern=rf"\A{_ROLE_ARN}\Z", title="an IAM role ARN")]
RoleSessionName = Annotated[
    str, Meta(pattern=r"\A[\w+=,.@-]{2,64}\Z", title="2 to 64 of a-z A-Z 0-9 _ + = , . @ -")
]
Text = Annotated[str, Meta(min_length=1)]
Seconds = Annotated[float, Meta(ge=0)]
SomeSeconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Url = Annotated[str, Meta(pattern=r"\Ahttps?://[^\s/]+", title="an http:// or https:// URL")]
