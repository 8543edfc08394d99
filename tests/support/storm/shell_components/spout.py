"""A spout for tests: emits the words of its command line, one a call, and those that fail again."""

import os
import sys
import time
from typing import Any

from tests.support.storm.shell_components.protocol import hello, read, say_that_it_hangs, send

_how, *_words = sys.argv[1:]
_told: list[list[Any]] = []
_waiting: list[dict[str, Any]] = [
    {"id": {"number": number}, "tuple": [word]} for number, word in enumerate(_words)
]
_emitted: dict[str, Any] = {}


def take(command: dict[str, Any]) -> None:
    if command["command"] != "next":
        _told.append([command["command"], command.get("id")])
    if command["command"] == "fail":
        _waiting.append(_emitted[str(command["id"])])
    if command["command"] != "next" or not _waiting:
        return
    word = _waiting.pop(0)
    misbehave(word["tuple"][0])
    if word["tuple"] == ["no number"]:
        word = {**word, "id": float("nan")}
    if word["tuple"] == ["half"]:
        word = {**word, "id": "half a character: \ud800"}
    if word["tuple"] == ["what?"]:
        word = {**word, "tuple": [_told, os.getpid()]}
    _emitted[str(word["id"])] = word
    send({"command": "emit", **word, **({"task": 4} if word["tuple"] == ["direct"] else {})})
    if "task" not in word and word["tuple"] != ["direct"]:
        assert read() == []


def misbehave(word: str) -> None:
    if word == "poison" and _how == "dies":
        sys.stderr.write("cannot stand poison\n")
        sys.exit(3)
    if word == "poison" and _how == "hangs":
        say_that_it_hangs()
        time.sleep(600)
    while word == "chatters":
        send({"command": "log", "msg": "still at it", "level": 0})
        time.sleep(0.01)


hello()
while True:
    take(read())
    send({"command": "sync"})
