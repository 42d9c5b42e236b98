// Copies the text of an element: <button data-copy="id" hidden>. Without a clipboard the text is selected instead.
"use strict";
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const told = document.querySelector(`[data-copied="${button.dataset.copy}"]`);
  if (!source) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      told.textContent = "Copied.";
    } catch {
      window.getSelection().selectAllChildren(source);
      told.textContent = "Selected: copy it with Ctrl-C.";
    }
  });
}
