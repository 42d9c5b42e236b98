"use strict";
/* Finding from everywhere: Ctrl-K or `/` opens what /admin/find/ is without script. The server makes the answers. */
(() => {
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const form = dialog.querySelector("form");
  const input = form.elements.q;
  const place = dialog.querySelector("[data-found]");
  const WAIT_MS = 150; // after the last key
  let timer = 0;
  let asked = 0;
  let answered = null; // the text that the answers are of

  const links = () => [...place.querySelectorAll("a")];

  async function ask() {
    const number = ++asked;
    try {
      const answer = await fetch(`${form.action}?${new URLSearchParams(new FormData(form))}`, {
        headers: { "X-Shardbeat-Fragment": "found" },
      });
      const text = await answer.text();
      if (number !== asked || !answer.ok || answer.redirected) return;
      place.innerHTML = text; // escaped by the page's template
      answered = input.value;
    } catch { /* Enter still sends the form */ }
  }

  function open() {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    ask();
  }

  function move(step) {
    const all = links();
    const at = all.indexOf(document.activeElement) + step;
    if (at < 0) input.focus(); else all[Math.min(at, all.length - 1)]?.focus();
  }

  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, WAIT_MS); });
  form.addEventListener("submit", (event) => { // Enter opens the first answer; too early, it asks on the page
    const first = answered === input.value ? links()[0] : null;
    if (first) { event.preventDefault(); first.click(); }
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") move(1); else if (event.key === "ArrowUp") move(-1); else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside it
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
  for (const link of document.querySelectorAll("a[data-palette]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in another tab, as any link
      event.preventDefault();
      open();
    });
  }
})();
