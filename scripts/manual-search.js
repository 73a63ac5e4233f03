// The manual's search, behind the list of its sections that manual-html.py writes in front of it:
// [page, anchor, page's title, heading, text]. Every word must occur; headings count most.
(() => {
  const field = document.getElementById("search");
  const results = document.getElementById("found");
  const up = field.dataset.up;
  const SHOWN_MAX = 20;
  const AROUND = 60;
  const sections = manualSections.map(([page, anchor, title, heading, text]) => ({
    page, anchor, title, heading, text,
    low: { title: title.toLowerCase(), heading: heading.toLowerCase(), text: text.toLowerCase() },
  }));

  function score(section, words) {
    let sum = 0;
    for (const word of words) {
      const { title, heading, text } = section.low;
      const of = (heading === word ? 200 : 0) + (heading.includes(word) ? 40 : 0)
        + (title.includes(word) ? 10 : 0) + Math.min(text.split(word).length - 1, 5);
      if (of === 0) return 0;
      sum += of;
    }
    return sum;
  }

  function snippet(section, words) {
    const places = words.map((word) => section.low.text.indexOf(word)).filter((at) => at >= 0);
    const at = places.length ? Math.min(...places) : 0;
    const from = Math.max(0, at - AROUND);
    const end = at + 2 * AROUND;
    const text = section.text.slice(from, end).trim();
    return (from > 0 ? "… " : "") + text + (end < section.text.length ? " …" : "");
  }

  function item(section, words) {
    const li = document.createElement("li");
    const link = document.createElement("a");
    link.href = up + section.page + (section.anchor ? "#" + section.anchor : "");
    link.textContent = section.heading === section.title
      ? section.title : section.title + " › " + section.heading;
    const text = document.createElement("span");
    text.textContent = snippet(section, words);
    li.append(link, text);
    return li;
  }

  function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length === 0 ? [] : sections
      .map((section) => ({ section, points: score(section, words) }))
      .filter((one) => one.points > 0)
      .sort((a, b) => b.points - a.points);
    results.replaceChildren(...found.slice(0, SHOWN_MAX).map((one) => item(one.section, words)));
    if (words.length > 0 && found.length === 0) {
      results.append(Object.assign(document.createElement("li"), { textContent: "Nothing found" }));
    }
    results.hidden = words.length === 0;
  }

  function step(event, by) {
    const links = [field, ...results.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    links[(at + by + links.length) % links.length].focus();
  }

  field.addEventListener("input", show);
  field.form.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") step(event, 1);
    if (event.key === "ArrowUp") step(event, -1);
    if (event.key === "Escape") { field.value = ""; show(); field.focus(); }
  });
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    const first = results.querySelector("a");
    if (first) location.href = first.href;
  });
  show();
})();
