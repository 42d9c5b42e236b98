"use strict";
/* Only comfort: every page works without this. */

/* The preview follows the form: asked for a moment after the last change, the newest answer counts. */
for (const form of document.querySelectorAll("form[data-preview]")) {
  const place = document.getElementById(form.dataset.preview);
  let timer = 0;
  let asked = 0;
  const ask = async () => {
    const number = ++asked;
    const body = new FormData(form);
    body.set("do", "preview");
    try {
      const answer = await fetch(form.action || location.href, {
        method: "POST", body: new URLSearchParams(body), headers: { "X-Shardbeat-Fragment": "preview" },
      });
      const text = await answer.text();
      if (number === asked && answer.headers.get("Content-Type").startsWith("text/html") && (answer.ok || answer.status === 400)) {
        place.innerHTML = text; // made and escaped by the same template as the page
      }
    } catch { /* the button still works */ }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(ask, 500); });
}

/* A form is sent once, also when its button is pressed twice. */
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
}

/* What may be copied can be selected with one press. */
for (const code of document.querySelectorAll(".once code")) {
  code.addEventListener("click", () => { getSelection().selectAllChildren(code); });
}
