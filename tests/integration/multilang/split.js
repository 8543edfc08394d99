// A bolt: a sentence in, its words out, each anchored to it. It asks for the tasks of each word and counts them.
"use strict";
const { run, send } = require("./protocol");

let tasks = 0;

run((message) => {
  if (Array.isArray(message)) {
    tasks += 1;
    return;
  }
  if (message.stream === "__heartbeat") {
    send({ command: "sync" });
    return;
  }
  for (const word of message.tuple[0].split(" ")) {
    send({ command: "emit", anchors: [message.id], tuple: [word] });
  }
  send({ command: "log", msg: `${tasks} answers with tasks so far` });
  send({ command: "ack", id: message.id });
});
