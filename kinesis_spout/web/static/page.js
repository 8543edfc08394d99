// Has the parts of a page that live refreshed every two seconds, while somebody can see them and selects nothing.
"use strict";
const LOOK_MILLIS = 2000;
let waiting = false;
document.addEventListener("htmx:beforeRequest", () => { waiting = true; });
for (const name of ["htmx:afterRequest", "htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, () => { waiting = false; });
}
setInterval(() => {
  const selected = document.getSelection();
  if (!document.hidden && !waiting && (!selected || selected.isCollapsed)) {
    document.body.dispatchEvent(new CustomEvent("look"));
  }
}, LOOK_MILLIS);
