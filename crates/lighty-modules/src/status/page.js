
"use strict";
const table = document.getElementById("connections");
const rows = table.tBodies[0];
const value = (row, at) => row.cells[at].dataset.by ?? row.cells[at].textContent;
Array.from(table.tHead.rows[0].cells).forEach((cell, at) => {
  const button = document.createElement("button");
  button.textContent = cell.textContent;
  cell.replaceChildren(button);
  button.addEventListener("click", () => {
    const down = cell.getAttribute("aria-sort") === "ascending";
    for (const other of cell.parentNode.cells) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = new Intl.Collator("en", { numeric: true });
    const sorted = Array.from(rows.rows).sort((a, b) => order.compare(value(a, at), value(b, at)));
    rows.append(...(down ? sorted.reverse() : sorted));
  });
});
