// Storm's multilang protocol as its documentation describes it: JSON, then a line "end".
"use strict";
const fs = require("fs");
const path = require("path");

const send = (message) => fs.writeSync(1, JSON.stringify(message) + "\nend\n");

// Shakes hands, then calls `take` with every message, one after the other.
function run(take) {
  let rest = "";
  let greeted = false;
  process.stdin.setEncoding("utf8");
  process.stdin.on("data", (data) => {
    const frames = (rest + data).split("\nend\n");
    rest = frames.pop();
    for (const frame of frames) {
      const message = JSON.parse(frame);
      if (greeted) {
        take(message);
        continue;
      }
      greeted = true;
      fs.closeSync(fs.openSync(path.join(message.pidDir, String(process.pid)), "w"));
      send({ pid: process.pid });
    }
  });
  process.stdin.on("end", () => process.exit(0));
}

module.exports = { run, send };
