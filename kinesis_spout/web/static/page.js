// Renews the part of a page that is live every two seconds. Only what has changed is touched: focus, selection,
// what was typed and what was opened stay. The page works without it.
const LOOK_MILLIS = 2000;
const PATIENCE_MILLIS = 30000;

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
  if (shown.isEqualNode(fresh)) return;
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
  for (const part of ["#live", "footer"]) renew(document.querySelector(part), fresh.querySelector(part));
  // A node that was moved has lost them.
  if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  if (!isCollapsed && selection.isCollapsed && from.isConnected && to.isConnected)
    selection.setBaseAndExtent(from, anchorOffset, to, focusOffset);
}

for (let live; (live = document.querySelector("[data-live]")); ) {
  await new Promise((done) => setTimeout(done, LOOK_MILLIS));
  if (document.hidden) continue;
  try {
    const answer = await fetch(live.dataset.live, { signal: AbortSignal.timeout(PATIENCE_MILLIS) });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.redirected) location.reload(); // to sign in again
    else if (fresh.querySelector("#live")) show(fresh);
  } catch {} // the server is away: the next look asks again
}
