"use strict";
/* Moments of the page (`{{ at|when }}`): how long ago, or exact in the zone that was chosen. Only comfort: without this
   they are exact, in UTC. The choice is kept in this browser. */
(() => {
  const KEY = "shardbeat.times";
  const AGAIN_MS = 5000;
  const UNITS = [[172800, 86400, "d"], [3600, 3600, "h"], [60, 60, "min"], [0, 1, "s"]]; // used from, seconds, name
  const picker = document.querySelector("select[data-times]");
  const said = Date.parse(picker?.dataset.now ?? "");
  const ahead = Number.isNaN(said) ? 0 : said - Date.now(); // by so much the server's clock is ahead of this one
  const formats = new Map();

  const kept = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const keep = (mode) => { try { localStorage.setItem(KEY, mode); } catch { /* for this page only, then */ } };

  /* `2026-11-30 09:00:00`, with the offset where it is not UTC. */
  function exact(at, zone) {
    if (!formats.has(zone)) {
      const wanted = { dateStyle: "short", timeStyle: "medium", timeZone: zone };
      try {
        formats.set(zone, [new Intl.DateTimeFormat("sv-SE", wanted),
          new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "longOffset" })]);
      } catch { return exact(at, "UTC"); } // a zone that this browser does not know
    }
    const [clock, offset] = formats.get(zone);
    const part = offset.formatToParts(at).find((one) => one.type === "timeZoneName").value.replace("GMT", "");
    return clock.format(at) + (zone === "UTC" ? "" : ` ${part || "+00:00"}`);
  }

  function relative(at) {
    const passed = (Date.now() + ahead - at) / 1000;
    const whole = Math.floor(Math.abs(passed));
    if (whole === 0) return "now";
    const [, size, unit] = UNITS.find(([least]) => whole >= least);
    const rough = `${Math.floor(whole / size)} ${unit}`;
    return passed > 0 ? `${rough} ago` : `in ${rough}`;
  }

  function show(element, mode) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    const zone = element.dataset.zone;
    const clock = element.classList.contains("clock"); // of a timeline: never relative, and to the millisecond
    const text = { utc: () => exact(at, "UTC"), local: () => exact(at), schedule: () => exact(at, zone || "UTC") }[mode]?.()
      ?? (clock ? exact(at, "UTC") : relative(at.getTime()));
    const told = clock ? text.replace(/:\d\d(?= |$)/, (seconds) => `${seconds}.${String(at.getMilliseconds()).padStart(3, "0")}`) : text;
    if (element.textContent !== told) element.textContent = told;
    const exactly = [`${exact(at, "UTC")} UTC`, `${exact(at)} here`, ...(zone ? [`${exact(at, zone)} ${zone}`] : [])].join("\n");
    if (element.title !== exactly) element.title = exactly;
  }

  const mode = () => picker?.value ?? kept() ?? "relative";
  const showAll = (root = document) => { for (const one of root.querySelectorAll("time.when")) show(one, mode()); };

  if (picker) {
    const before = kept();
    if ([...picker.options].some((one) => one.value === before)) picker.value = before;
    picker.addEventListener("change", () => { keep(picker.value); showAll(); });
    picker.closest("[hidden]")?.removeAttribute("hidden");
  }
  showAll();
  setInterval(() => { if (!document.hidden && mode() === "relative") showAll(); }, AGAIN_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) showAll(); });
  /* What live.js and htmx put into the page. */
  new MutationObserver((changes) => {
    for (const change of changes) {
      for (const one of change.addedNodes) {
        if (one.nodeType !== Node.ELEMENT_NODE) continue;
        if (one.matches("time.when")) show(one, mode()); else showAll(one);
      }
    }
  }).observe(document.body, { childList: true, subtree: true });
})();
