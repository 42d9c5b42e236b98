"use strict";
/* One-key shortcuts: a link or a button of this page with data-key is pressed by that key, a place of the navigation
   with data-go by g and then its key. `?` lists them, and switches them off for whoever speaks instead of typing. */
(() => {
  const KEY = "shardbeat.keys";
  const SECOND_MS = 1500; // so long a first key waits for its second
  const dialog = document.getElementById("keys");
  if (!dialog) return;
  const box = dialog.querySelector("input[type=checkbox]");
  const list = dialog.querySelector("[data-list]");
  let first = "";
  let since = 0;

  const kept = () => { try { return localStorage.getItem(KEY) !== "off"; } catch { return true; } };
  box.checked = kept();
  box.addEventListener("change", () => { try { localStorage.setItem(KEY, box.checked ? "on" : "off"); } catch { /* for now */ } });

  const seen = (one) => one.checkVisibility() && !one.disabled && one.getAttribute("aria-disabled") !== "true";
  const keysOf = (one) => one.dataset.key ?? `g ${one.dataset.go}`;
  const offered = () => [...document.querySelectorAll("[data-key], [data-go]")].filter((one) => one.dataset.go || seen(one));

  function row(keys, text) {
    const term = document.createElement("dt");
    for (const key of keys.split(" ")) {
      const kbd = document.createElement("kbd");
      kbd.textContent = key;
      term.append(kbd, " ");
    }
    const says = document.createElement("dd");
    says.textContent = text;
    return [term, says];
  }

  function help() {
    if (dialog.open) return;
    const known = new Map([["?", "These keys"], ["/", "Find a page, a tenant, a schedule, an id"], ["Ctrl-K", "The same, also while typing"]]);
    for (const one of offered()) {
      if (!known.has(keysOf(one))) known.set(keysOf(one), (one.getAttribute("aria-label") || one.title || one.textContent).trim());
    }
    list.replaceChildren(...[...known].flatMap(([keys, text]) => row(keys, text)));
    dialog.showModal();
  }

  function press(keys) {
    const one = offered().find((other) => keysOf(other) === keys);
    if (!one) return false;
    one.focus();
    one.click();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable], dialog")) return;
    if (!kept() || event.key.length !== 1) return;
    if (event.key === "?") { event.preventDefault(); help(); return; }
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("a[data-palette]")?.click();
      return;
    }
    const after = first && Date.now() - since < SECOND_MS ? `${first} ${event.key}` : "";
    first = "";
    if (after && press(after)) { event.preventDefault(); return; }
    if (event.key === "g") { first = "g"; since = Date.now(); return; }
    if (press(event.key)) event.preventDefault();
  });
  for (const button of document.querySelectorAll("button[data-keys]")) {
    button.hidden = false;
    button.addEventListener("click", help);
  }
})();
