(() => {
const table = document.querySelector("table"), body = table && table.tBodies[0];
if (!body) return;
const rows = [...body.rows].filter(r => !r.classList.contains("up"));
const byText = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" }).compare;
const key = [
  r => r.cells[0].textContent,
  r => r.cells[1].firstElementChild?.dateTime ?? r.cells[1].textContent,
  r => +(r.cells[2].dataset.n ?? r.cells[2].firstElementChild?.value ?? -1),
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
let names, due = 0;
box.oninput = () => {
  cancelAnimationFrame(due);
  due = requestAnimationFrame(() => {
    // Only now: most readers of a long listing do not filter it.
    names ??= rows.map(r => r.cells[0].textContent.toLowerCase());
    const wanted = box.value.toLowerCase();
    rows.forEach((row, i) => { row.hidden = !names[i].includes(wanted); });
  });
};
const bar = document.querySelector(".bar");
bar?.append(box);
if (bar && "upload" in bar.dataset) {
  const label = document.createElement("label"), pick = document.createElement("input");
  const said = document.createElement("p");
  pick.type = "file";
  pick.multiple = true;
  label.className = "pick";
  label.append("Upload files", pick);
  said.role = "status";
  const upload = async files => {
    for (const file of files) {
      said.textContent = `Uploading ${file.name} …`;
      const url = "./" + encodeURIComponent(file.name);
      const put = fetch(url, { method: "PUT", body: file, headers: { "If-None-Match": "*" } });
      const status = await put.then(answer => answer.status, () => 0);
      if (status < 200 || status > 299) {
        const why = status === 412 ? "a file of this name exists" : status ? `status ${status}` : "no answer";
        said.textContent = `${file.name} was not uploaded: ${why}`;
        return;
      }
    }
    location.reload();
  };
  pick.onchange = () => upload([...pick.files]);
  document.ondragover = event => event.preventDefault();
  document.ondrop = event => {
    event.preventDefault();
    upload([...event.dataTransfer.files]);
  };
  bar.append(label, said);
}
})();
