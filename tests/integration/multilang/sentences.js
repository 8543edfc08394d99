// A spout: each sentence of its command line once, and again if it fails.
"use strict";
const { run, send } = require("./protocol");

const waiting = process.argv.slice(2).map((sentence, number) => ({ id: number + 1, tuple: [sentence] }));
const pending = new Map();

run((message) => {
  if (Array.isArray(message)) {
    return;
  }
  if (message.command === "next" && waiting.length > 0) {
    const next = waiting.shift();
    pending.set(next.id, next);
    send({ command: "emit", need_task_ids: false, ...next });
  } else if (message.command === "fail") {
    waiting.push(pending.get(message.id));
  } else if (message.command === "ack") {
    pending.delete(message.id);
    send({ command: "metrics", name: "acked", params: message.id });
  }
  send({ command: "sync" });
});
