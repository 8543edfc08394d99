"""A bolt that speaks the bare protocol, as its documentation describes it; the first argument says how it behaves."""

import json
import os
import sys
import time


def read():
    lines = []
    while True:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        if line == "end\n":
            return json.loads("".join(lines))
        lines.append(line)


def send(message):
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


def hello():
    told = read()
    open(os.path.join(told["pidDir"], str(os.getpid())), "w").close()
    send({"pid": os.getpid()})
    return told


def is_heartbeat(message):
    return message["task"] == -1 and message["stream"] == "__heartbeat"


def is_tick(message):
    return message["stream"] == "__tick"


def ack(message):
    send({"command": "ack", "id": message["id"]})


def emit(message, values, **more):
    send({"command": "emit", "anchors": [message["id"]], "tuple": values, "need_task_ids": False, **more})


def main():
    behave = sys.argv[1] if len(sys.argv) > 1 else "upper"
    if behave == "dies at once":
        sys.exit("no such module")
    if behave == "never answers":
        time.sleep(600)
    told = hello()
    if behave == "tells":
        sys.stderr.write("")
    seen = 0
    held = []
    while True:
        message = read()
        if isinstance(message, list):
            raise SystemExit(f"unexpected task ids {message}")
        if is_heartbeat(message):
            if behave != "ignores heart-beats":
                send({"command": "sync"})
            continue
        if is_tick(message):
            if behave == "batches":
                for each in held:
                    emit(each, [len(held)])
                    ack(each)
                held = []
            ack(message)
            continue
        seen += 1
        value = message["tuple"][0]
        if behave == "upper":
            emit(message, [value.upper()])
        elif behave == "counts":
            emit(message, [value, seen, os.getpid()])
        elif behave == "context":
            emit(message, [told["conf"], told["context"], os.getcwd(), os.environ.get("COLOUR")])
        elif behave == "junk":
            print("Hello, I am a stray print")
            emit(message, [value])
        elif behave == "only junk":
            for _ in range(2000):
                print("I do not speak multilang")
            sys.stdout.flush()
            continue
        elif behave == "dies" and value == "poison":
            sys.stderr.write("ZeroDivisionError: cannot stand poison\n")
            sys.stderr.flush()
            os._exit(3)
        elif behave == "is killed" and value == "poison":
            os.kill(os.getpid(), 9)
        elif behave == "hangs" and value == "poison":
            time.sleep(600)
        elif behave == "unknown id":
            send({"command": "ack", "id": str(int(message["id"]) + 17)})
        elif behave == "acks twice":
            ack(message)
        elif behave == "anchors late":
            ack(message)
            emit(message, [value])
            continue
        elif behave == "fails":
            send({"command": "error", "msg": f"do not like {value}"})
            send({"command": "fail", "id": message["id"]})
            continue
        elif behave == "task ids":
            send({"command": "emit", "anchors": message["id"], "tuple": [value]})
            tasks = read()
            while not isinstance(tasks, list):
                if is_heartbeat(tasks):
                    send({"command": "sync"})
                else:
                    held.append(tasks)
                tasks = read()
            emit(message, [f"{value} went to {tasks}"])
            for each in held:
                ack(each)
            held = []
        elif behave == "direct":
            send(
                {
                    "command": "emit",
                    "anchors": [message["id"]],
                    "tuple": [value],
                    "task": 9,
                    "stream": "aside",
                }
            )
        elif behave == "floods":
            sys.stderr.write("much ado about nothing\n" * 100_000)
            sys.stderr.flush()
        elif behave == "logs":
            send({"command": "log", "msg": f"seen {value}", "level": 3})
            send({"command": "metrics", "name": "seen", "params": seen})
        elif behave in ("batches", "keeps"):
            held.append(message)
            continue
        elif behave == "wrong fields":
            emit(message, [value, value, value, value, value, value])
        ack(message)


main()
