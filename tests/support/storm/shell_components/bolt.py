"""A bolt for tests. Its first argument says how it behaves; mostly when it is given the word "poison"."""

import json
import os
import signal
import sys
import time
from typing import Any, Final, NoReturn

from tests.support.storm.shell_components.protocol import (
    Message,
    ack,
    emit,
    hello,
    read,
    say_that_it_goes_on,
    say_that_it_hangs,
    send,
)

_FOREVER: Final = 600.0
_told: Message = {}
_seen: list[str] = []
_held: list[Message] = []


def upper(message: Message, word: str) -> None:
    emit(message, [word.upper()])
    ack(message)


def counts(message: Message, word: str) -> None:
    emit(message, [word, len(_seen), os.getpid()])
    ack(message)


def context(message: Message, _: str) -> None:
    emit(message, [_told["conf"], _told["context"], os.path.realpath("."), os.environ.get("COLOUR")])
    ack(message)


def prints(message: Message, word: str) -> None:
    sys.stdout.write("Hello, I am a stray print\n")
    upper(message, word)


def only_prints(_: Message, __: str) -> None:
    for _number in range(100):
        sys.stdout.write("I do not speak multilang\n")
    sys.stdout.flush()
    say_that_it_hangs()


def dies(message: Message, word: str) -> None:
    if word == "poison":
        sys.stderr.write("cannot stand poison\n")
        sys.exit(3)
    upper(message, word)


def dies_of_some(message: Message, word: str) -> None:
    if word.startswith("poison"):
        sys.exit(3)
    same(message, word)


def dies_half_way_of_some(message: Message, word: str) -> None:
    if word.startswith("poison"):
        emit(message, ["half of it"])
        sys.exit(3)
    same(message, word)


def same(message: Message, word: str) -> None:
    emit(message, [word])
    ack(message)


def dies_of_a_batch(message: Message, _: str) -> None:
    _held.append(message)


def begins_two_and_dies(message: Message, word: str) -> None:
    _held.append(message)
    if word == "b":
        upper(message, word)
    elif word == "poison":
        for each in _held:
            emit(each, ["half of it"])
        sys.exit(3)


def emits_nowhere_first(message: Message, word: str) -> None:
    if word.startswith("poison"):
        emit(message, [word], stream="nowhere")
    upper(message, word)


def is_killed(message: Message, word: str) -> None:
    if word == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    upper(message, word)


def kills_its_owner(message: Message, word: str) -> None:
    if word == "poison":
        os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(3)
    upper(message, word)


def hangs(message: Message, word: str) -> None:
    if word == "poison":
        say_that_it_hangs()
        time.sleep(_FOREVER)
    upper(message, word)


def names_an_unknown_id(message: Message, word: str) -> None:
    if word == "poison":
        send({"command": "ack", "id": str(int(message["id"]) + 1_000)})
    upper(message, word)


def acks_twice(message: Message, word: str) -> None:
    upper(message, word)
    ack(message)


def anchors_after_the_ack(message: Message, word: str) -> None:
    _held.append(message)
    if len(_held) == 2:
        ack(_held[0])
        emit(_held[0], [word])


def fails(message: Message, word: str) -> None:
    if word != "poison":
        upper(message, word)
        return
    send({"command": "error", "msg": "poison is no food"})
    send({"command": "fail", "id": message["id"]})


def asks_for_tasks(message: Message, word: str) -> None:
    # One bare anchor, and no word of task ids: they are wanted.
    send({"command": "emit", "anchors": message["id"], "tuple": [word]})
    emit(message, [f"{word} went to {hear_of_tasks()}"])
    ack(message)


def hear_of_tasks() -> Any:
    while not isinstance(answer := read(), list):
        _held.append(answer)
    return answer


def emits_aside(message: Message, word: str) -> None:
    emit(message, [word], stream="aside", task=9)
    ack(message)


def joins(message: Message, word: str) -> None:
    _held.append(message)
    if len(_held) == 2:
        send(
            {
                "command": "emit",
                "anchors": [each["id"] for each in _held],
                "tuple": [word],
                "need_task_ids": False,
            }
        )
        for each in _held:
            ack(each)
        _held.clear()


def floods(message: Message, word: str) -> None:
    sys.stderr.write("much ado about nothing\n" * 50_000)
    sys.stderr.write("the last line\n")
    sys.stderr.flush()
    dies(message, word)


def logs(message: Message, word: str) -> None:
    send({"command": "log", "msg": f"seen {word}", "level": 3})
    send({"command": "metrics", "name": "seen", "params": len(_seen)})
    upper(message, word)


def damages_an_emit(message: Message, word: str) -> None:
    """As one whose threads print while it speaks. It knows nothing of it, and acks."""
    if word == "poison":
        sys.stdout.write("99%")
    upper(message, word)


def emits_what_is_no_tuple(message: Message, word: str) -> None:
    if word == "poison":
        send({"command": "emit", "anchors": [message["id"]], "tuple": word})
        ack(message)
        return
    upper(message, word)


def acks_a_number(message: Message, word: str) -> None:
    if word == "poison":
        send({"command": "ack", "id": int(message["id"])})
    upper(message, word)


def acks_a_list(message: Message, word: str) -> None:
    if word == "poison":
        send({"command": "ack", "id": [message["id"]]})
    upper(message, word)


def prints_json(message: Message, word: str) -> None:
    for number in range(30):
        sys.stdout.write(json.dumps({"debug": number}) + "\n")
    sys.stdout.write("[1, 2, 3]\n")
    upper(message, word)


def chatters(message: Message, word: str) -> None:
    """More than anybody reads, and what no log or progress can hold."""
    for number in range(2_000):
        send({"command": "log", "msg": f"line {number} \ud800 " + 50_000 * "x" * (number == 7)})
        send({"command": "metrics", "name": f"name {number}", "params": number})
    for value in (0.5, 10**400, float("nan"), ["x" * 50_000], "\ud800"):
        send({"command": "metrics", "name": "odd \ud800", "params": value})
    send({"command": "error", "msg": "\ud800 is half a character"})
    upper(message, word)


def closes_its_input(message: Message, word: str) -> None:
    if word == "poison":
        os.close(0)
        while True:
            send({"command": "log", "msg": "I talk and do not listen"})
            time.sleep(0.01)
    upper(message, word)


def closes_its_output(message: Message, word: str) -> None:
    if word == "poison":
        os.close(1)
        time.sleep(_FOREVER)
    upper(message, word)


def leaves_a_child_behind(message: Message, word: str) -> None:
    """One that keeps the pipes open, in a session of its own."""
    if word == "poison":
        parent = os.getpid()
        if os.fork() == 0:
            os.setsid()
            while os.getppid() == parent:
                time.sleep(0.01)
            say_that_it_hangs()
            time.sleep(5)
        os._exit(3)
    upper(message, word)


def emits_too_many_values(message: Message, word: str) -> None:
    emit(message, [word] * (6 if word == "poison" else 1))
    ack(message)


def keeps(message: Message, word: str) -> None:
    """For a tick, which is to come when it holds more than ten, or the last."""
    _held.append(message)
    if len(_held) > 10 or word == "last":
        say_that_it_hangs()


def acks_late(message: Message, word: str) -> None:
    """When the next one comes. It hangs unless it was given "b"."""
    for each in _held:
        emit(each, ["late"])
        ack(each)
    _held[:] = [message]
    if word != "b":
        say_that_it_hangs()


def never_hears(message: Message, word: str) -> None:
    """Heart-beats: its tuples are its only signs of life."""
    time.sleep(0.15)
    upper(message, word)


def emits_early(message: Message, word: str) -> None:
    upper(message, word)


def only_talks(_: Message, __: str) -> None:
    """Does nothing that it is asked."""
    while True:
        send({"command": "log", "msg": "busy", "level": 0})
        time.sleep(0.05)


def prints_much_before_it_emits(message: Message, word: str) -> None:
    """On one line, more than a frame may have."""
    if word == "poison":
        for _megabyte in range(65):
            sys.stdout.write("x" * 1024 * 1024)
        sys.stdout.write("\n")
    upper(message, word)


def emits_on_ticks(message: Message, word: str) -> None:
    upper(message, word)


def on_tick(message: Message) -> None:
    if sys.argv[1] == "emits_on_ticks":
        emit(message, ["tick"])
    if sys.argv[1] == "dies_of_a_batch" and any(each["tuple"] == ["poison"] for each in _held):
        sys.exit(3)
    for each in _held:
        emit(each, [len(_held)])
        ack(each)
    _held.clear()
    say_that_it_goes_on()
    ack(message)


def main() -> NoReturn:
    how = sys.argv[1]
    if how == "dies_at_once":
        sys.exit("no such module")
    if how == "never_answers":
        time.sleep(_FOREVER)
    behave: Any = globals()[how]
    if how == "emits_early":
        read()
        os.write(
            1, f'{{"pid": {os.getpid()}}}\nend\n{{"command": "emit", "tuple": ["early"]}}\nend\n'.encode()
        )
        hear_of_tasks()
    else:
        _told.update(hello())
    while True:
        message = _held.pop(0) if behave in (asks_for_tasks, emits_early) and _held else read()
        if message["task"] == -1 and message["stream"] == "__heartbeat":
            if behave not in (never_hears, only_prints):
                send({"command": "sync"})
        elif message["stream"] == "__tick":
            on_tick(message)
        else:
            _seen.append(message["tuple"][0])
            behave(message, message["tuple"][0])


main()
