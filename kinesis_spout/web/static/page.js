// Counts the age of what is shown, and renews a live page every two seconds. Only what has changed is touched: focus,
// selection, what was typed and what was opened stay. A page that was not renewed three times greys and says so; it
// goes on asking. The page works without this script.
const LOOK_MILLIS = 2000;
const MISSES = 3;
const PATIENCE_MILLIS = 30000; // of a page that is grey: the server may be waiting too

let readAt, etag, missed = 0, said = "";

// What a node is about; "" if it is known by its place alone.
const keyOf = (node) => node.id || node.dataset?.key || node.getAttribute?.("href") || "";
const isAlike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

function renewAttributes(shown, fresh) {
  for (const { name } of [...shown.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) shown.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
}

function renew(shown, fresh) {
  if (shown.isEqualNode(fresh) || shown.dataset?.kept !== undefined) return;
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    shown.data = fresh.data;
    return;
  }
  renewAttributes(shown, fresh);
  let at = shown.firstChild;
  for (const child of [...fresh.childNodes]) {
    let found = at;
    while (found && !isAlike(found, child)) found = keyOf(child) ? found.nextSibling : null;
    if (found) renew(found, child);
    if (found && found === at) at = at.nextSibling;
    else shown.insertBefore(found || child, at);
  }
  while (at?.nextSibling) at.nextSibling.remove();
  at?.remove();
}

function show(fresh) {
  const focused = document.activeElement;
  const selection = document.getSelection();
  const { isCollapsed, anchorNode: from, anchorOffset, focusNode: to, focusOffset } = selection;
  renew(document.body, fresh.body);
  // A node that was moved has lost them.
  if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  if (!isCollapsed && selection.isCollapsed && from.isConnected && to.isConnected)
    selection.setBaseAndExtent(from, anchorOffset, to, focusOffset);
}

function tick() {
  const seconds = Math.round((Date.now() - readAt) / 1000);
  const [length, unit] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : [3600, "h"];
  document.querySelector("#read time").textContent =
    seconds < 1 ? "now" : `${Math.round(seconds / length)} ${unit} ago`;
}

function wasRead(secondsAgo) {
  missed = 0;
  readAt = Date.now() - 1000 * secondsAgo;
  const time = document.querySelector("#read time");
  time.title = time.dateTime = new Date(readAt).toISOString();
  say("");
  tick();
}

function say(why, link) {
  const text = why && `Not renewed since ${new Date(readAt).toLocaleTimeString()}: ${why}`;
  if (text === said) return; // it is read aloud when it changes
  said = text;
  document.documentElement.classList.toggle("stale", text !== "");
  const notice = document.querySelector("#stale");
  notice.hidden = text === "";
  notice.replaceChildren(text, ...(link ? [" ", link] : []));
}

function miss(why, count = 1, link) {
  missed += count;
  if (missed >= MISSES) say(why, link);
}

function signedOut() {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Sign in again.";
  miss("the server does not let you in any more.", MISSES, link);
}

async function look(address) {
  const patience = missed < MISSES ? MISSES * LOOK_MILLIS : PATIENCE_MILLIS;
  try {
    const answer = await fetch(address, {
      headers: etag ? { "if-none-match": etag } : {},
      redirect: "manual", // only signing in is elsewhere
      signal: AbortSignal.timeout(patience),
    });
    if (answer.status === 304) return wasRead(answer.headers.get("x-read-seconds"));
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) return signedOut();
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const read = fresh.querySelector("#read");
    if (!answer.ok || !read) {
      const said = fresh.querySelector("[role=alert]:not([hidden])")?.textContent ?? "";
      return miss(`the server answers ${answer.status}${said && ": "}${said}.`);
    }
    etag = answer.headers.get("etag");
    show(fresh);
    wasRead(read.dataset.seconds);
  } catch (error) {
    const isSlow = error.name === "TimeoutError";
    miss(`the server does not answer${isSlow ? ` within ${patience / 1000} s` : ""}.`, isSlow ? MISSES : 1);
  }
}

const pause = () => new Promise((done) => setTimeout(done, LOOK_MILLIS));
const visible = () => document.hidden && new Promise((done) => addEventListener("visibilitychange", done, { once: true }));

wasRead(document.querySelector("#read").dataset.seconds);
setInterval(tick, 1000);
for (let live; (live = document.querySelector("[data-live]")); ) {
  await pause();
  while (document.hidden) await visible();
  await look(live.dataset.live);
}
