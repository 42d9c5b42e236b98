"use strict";
/* Renews the parts of the page that have data-live, from one snapshot for everybody. Only comfort: without this the page
   is as it was when it was asked for. Nothing is asked while the page is hidden or paused. */
(() => {
  const SOON_MS = 1000, LATE_MS = 5000, PATIENCE_MS = 5000, MISSED_MANY = 3, OLD_MS = 10000;
  const strip = document.querySelector("[data-live-url]");
  if (!strip) return;
  const pause = strip.querySelector("[data-live-pause]");
  const state = strip.querySelector("[data-live-state]");
  const stale = strip.querySelector("[data-live-stale]");
  let version = `"${strip.dataset.liveVersion}"`;
  let made = Date.now(), missed = 0, unchanged = 0, paused = false, timer = 0, asking = false;

  /* Swaps one part; what was open stays open, and what had the focus keeps it. */
  function put(element, html) {
    if (element.liveHtml === html) return;
    element.liveHtml = html;
    const open = [...element.querySelectorAll("details")].map((one) => one.open);
    const at = element.contains(document.activeElement)
      ? [...element.querySelectorAll("a, summary, button")].indexOf(document.activeElement) : -1;
    element.innerHTML = html;
    element.querySelectorAll("details").forEach((one, number) => { one.open = open[number] ?? false; });
    if (at >= 0) element.querySelectorAll("a, summary, button")[at]?.focus({ preventScroll: true });
  }

  /* An answer may be old, too: when nobody makes new figures. How old is counted by the server's clock, not by ours. */
  function told(asOf, now) {
    const age = Math.max(0, Date.parse(now) - Date.parse(asOf)) || 0;
    made = Date.now() - age; missed = 0;
    if (asOf) state.textContent = `As of ${asOf.slice(11, 19)} UTC`;
    if (age > OLD_MS) { old("nobody makes new figures"); return; }
    stale.hidden = true; stale.textContent = ""; stale.removeAttribute("data-why");
    document.documentElement.removeAttribute("data-stale");
  }

  function old(why) {
    if (stale.dataset.why !== why) {
      stale.innerHTML = `<strong>STALE</strong>: ${why}. What you see is <span data-age></span> s old.`;
      stale.dataset.why = why;
      stale.hidden = false;
      document.documentElement.setAttribute("data-stale", "");
    }
    stale.querySelector("[data-age]").textContent = String(Math.round((Date.now() - made) / 1000));
  }

  function lost() {
    missed += 1;
    if (missed >= MISSED_MANY) old("no answer from the console");
  }

  async function ask() {
    if (asking || paused || document.hidden) return;
    asking = true;
    try {
      const answer = await fetch(strip.dataset.liveUrl, {
        headers: { "If-None-Match": version, Accept: "application/json" }, cache: "no-store", redirect: "error",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
      if (answer.status === 304) {
        unchanged += 1;
        told(answer.headers.get("Shardbeat-As-Of"), answer.headers.get("Shardbeat-Now"));
      } else if (answer.ok) {
        const found = await answer.json();
        for (const element of document.querySelectorAll("[data-live]")) {
          const html = found.parts[element.dataset.live];
          if (html !== undefined) put(element, html);
        }
        version = answer.headers.get("ETag") ?? version;
        unchanged = 0;
        told(found.as_of, answer.headers.get("Shardbeat-Now"));
      } else {
        lost();
      }
    } catch {
      lost();
    }
    asking = false;
    later();
  }

  function later() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    timer = setTimeout(ask, missed ? SOON_MS : Math.min(LATE_MS, SOON_MS * (1 + unchanged)));
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) { clearTimeout(timer); state.textContent += ", paused"; } else { unchanged = 0; ask(); }
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer); else { unchanged = 0; ask(); }
  });
  later();
})();
