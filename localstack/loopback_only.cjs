// Preloaded into kinesis-local (node --require): it listens on every interface, has no setting for that and no
// access control, so a listen without a host is given the loopback address.
"use strict";
const { Server } = require("node:net");

const listen = Server.prototype.listen;
Server.prototype.listen = function (...args) {
  const [first, second] = args;
  if (typeof first === "number" && typeof second !== "string") {
    args.splice(1, 0, "127.0.0.1");
  } else if (typeof first === "object" && first !== null && "port" in first && !first.host) {
    args[0] = { ...first, host: "127.0.0.1" };
  }
  return listen.apply(this, args);
};
