"use strict";
const PERIOD_MS = 2000;
const order = new Intl.Collator("en", { numeric: true });
const value = (row, at) => row.cells[at].dataset.by ?? row.cells[at].textContent;
let by = null;

function sort() {
  const table = document.getElementById("connections");
  if (!table || !by) return;
  const rows = table.tBodies[0];
  const sorted = Array.from(rows.rows).sort((a, b) => order.compare(value(a, by.at), value(b, by.at)));
  rows.append(...(by.down ? sorted.reverse() : sorted));
  table.tHead.rows[0].cells[by.at].setAttribute("aria-sort", by.down ? "descending" : "ascending");
}

function addButtons() {
  const table = document.getElementById("connections");
  if (!table) return;
  Array.from(table.tHead.rows[0].cells).forEach((cell, at) => {
    const button = document.createElement("button");
    button.textContent = cell.textContent;
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      for (const other of cell.parentNode.cells) other.removeAttribute("aria-sort");
      by = { at, down: by?.at === at && !by.down };
      sort();
    });
  });
  sort();
}

async function update() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
  if (!response.ok) throw new Error(response.status);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const section of document.querySelectorAll("section")) {
    const next = fresh.getElementById(section.id);
    // Who is within a section by keyboard stays there.
    const held = section.contains(document.activeElement) && document.activeElement.textContent;
    if (!next) continue;
    section.replaceChildren(...next.childNodes);
    if (section.id === "clients") addButtons();
    if (held) Array.from(section.querySelectorAll("button")).find((one) => one.textContent === held)?.focus();
  }
}

const live = document.createElement("button");
live.className = "live";
let running = true;
function show(words) {
  live.textContent = words;
  live.setAttribute("aria-pressed", String(running));
}
async function turn() {
  if (running && !document.hidden) {
    try {
      await update();
      show("Live: pause");
    } catch {
      show("The server does not answer");
    }
  }
  setTimeout(turn, PERIOD_MS);
}
live.addEventListener("click", () => {
  running = !running;
  show(running ? "Live: pause" : "Paused: go on");
});
show("Live: pause");
document.querySelector("main").prepend(live);
addButtons();
setTimeout(turn, PERIOD_MS);
