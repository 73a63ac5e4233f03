(() => {
const table = document.querySelector("table"), body = table && table.tBodies[0];
if (!body) return;
const rows = [...body.rows].filter(r => !r.classList.contains("up"));
const byText = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" }).compare;
const key = [
  r => r.cells[0].textContent,
  r => r.cells[1].firstElementChild?.dateTime ?? "",
  r => +(r.cells[2].firstElementChild?.value ?? -1),
  r => r.cells[3].textContent,
];
const isDir = r => r.cells[0].textContent.endsWith("/");
const heads = [...table.tHead.rows[0].cells];
heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.onclick = () => {
    const down = head.ariaSort === "ascending" ? -1 : 1;
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down < 0 ? "descending" : "ascending");
    const keyed = rows.map(row => ({ row, dir: isDir(row), key: key[column](row) }));
    const compare = column === 2 ? (a, b) => a - b : byText;
    keyed.sort((a, b) => b.dir - a.dir || down * compare(a.key, b.key));
    const sorted = document.createDocumentFragment();
    keyed.forEach(k => sorted.append(k.row));
    body.append(sorted);
  };
});
const box = document.createElement("input");
box.type = "search";
box.placeholder = "Filter names";
box.ariaLabel = "Filter names";
const names = rows.map(r => r.cells[0].textContent.toLowerCase());
let due = 0;
box.oninput = () => {
  cancelAnimationFrame(due);
  due = requestAnimationFrame(() => {
    const wanted = box.value.toLowerCase();
    rows.forEach((row, i) => { row.hidden = !names[i].includes(wanted); });
  });
};
document.querySelector(".bar")?.append(box);
})();
