#!/usr/bin/env python3
"""Renders the manual's Markdown as HTML pages: scripts/manual-html.py docs/manual DIR

The pages link to style.css in the directory above DIR, as the example site has it; search.js beside them
holds every section's text and the search over it, and is loaded when somebody searches. What is
understood is what the manual uses: headings, paragraphs, lists, tables, fenced code, inline code,
bold and italic text, links. Nothing but the standard library is needed.
"""

import html
import json
import os
import re
import sys
from pathlib import Path

FENCE = re.compile(r"^```(.*)$")
HEADING = re.compile(r"^(#{1,6}) (.*)$")
ITEM = re.compile(r"^( *)(?:[-*]|\d+\.) (.*)$")
NUMBERED = re.compile(r"^ *\d+\. ")
RULE = re.compile(r"^\|(?: *:?-+:? *\|)+$")
TABLES = ("requests-faults.md", "lighttpd-differences.md")  # pages that belong to the one before
BLOCK_START = re.compile(r"^(?:```|#{1,6} |\||<!--| *(?:[-*]|\d+\.) )")


def anchor(heading):
    """The id of a heading, as forges make it, so that links work in both places."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def plain(text):
    """Text without marks, for titles."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("*", "")


def inline(text):
    """Code, links, bold and italic text within a line. Code is taken out first."""
    codes = []

    def keep(match):
        codes.append("<code>" + html.escape(match.group(1), quote=False) + "</code>")
        return f"\0{len(codes) - 1}\0"

    text = re.sub(r"`([^`]+)`", keep, text)
    text = html.escape(text, quote=False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", r'<img alt="\1" src="\2" loading="lazy">', text)
    text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", text)
    return re.sub(r"\0(\d+)\0", lambda m: codes[int(m.group(1))], text)


def link(match):
    text, target = match.groups()
    if "://" not in target:
        target = re.sub(r"\.md(?=#|$)", ".html", target)
    return f'<a href="{html.escape(target)}">{text}</a>'


def code(language, lines):
    text = html.escape("\n".join(lines), quote=False)
    if language.startswith("lighty"):
        # Strings before comments: a # may stand in a string.
        marks = re.compile(r'("(?:\\"|[^"\\]|\\(?!"))*")|(#[^\n]*)')
        wrap = lambda m: f'<i class="{"s" if m.group(1) else "c"}">{m.group(0)}</i>'
        text = marks.sub(wrap, text)
    name = html.escape(language.split()[0]) if language else "text"
    return f'<pre class="{name}"><code>{text}</code></pre>'


def cells(line):
    """The cells of a table's row; `\\|` is a character of a cell."""
    parts = re.split(r"(?<!\\)\|", line.strip().strip("|") if line.endswith("|") else line)
    return [part.strip().replace("\\|", "|") for part in parts]


class Page:
    """A page being rendered: lines in, HTML out."""

    def __init__(self, text):
        self.lines = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S).split("\n")
        self.at = 0
        self.out = []
        self.title = "lighty"
        self.sections = []

    def texts(self):
        """Each section's anchor, heading and text, for the search."""
        parts = re.split(r'<h[1-6] id="([^"]*)">(.*?)<a class="here".*?</h[1-6]>', "\n".join(self.out))
        for anchor, heading, body in zip(parts[1::3], parts[2::3], parts[3::3]):
            words = [html.unescape(re.sub(r"<[^>]+>", " ", part)) for part in (heading, body)]
            yield anchor, *(" ".join(text.split()) for text in words)

    def render(self):
        while self.at < len(self.lines):
            self.block()
        return "\n".join(self.out)

    def block(self):
        line = self.lines[self.at]
        fence, heading = FENCE.match(line), HEADING.match(line)
        if not line.strip():
            self.at += 1
        elif fence:
            self.fence(fence.group(1).strip())
        elif heading:
            self.heading(len(heading.group(1)), heading.group(2))
        elif line.startswith("|"):
            self.table()
        elif ITEM.match(line):
            self.out.append(self.list(len(ITEM.match(line).group(1))))
        else:
            self.paragraph()

    def fence(self, language):
        end = self.at + 1
        while end < len(self.lines) and not self.lines[end].startswith("```"):
            end += 1
        self.out.append(code(language, self.lines[self.at + 1 : end]))
        self.at = end + 1

    def heading(self, level, text):
        self.at += 1
        name = anchor(text if "](" not in text else plain(text))
        if level == 1:
            self.title = plain(text)
        if level == 2:
            self.sections.append((name, plain(text)))
        body = inline(text)
        self.out.append(f'<h{level} id="{name}">{body}<a class="here" href="#{name}" aria-label="link to this section">#</a></h{level}>')

    def table(self):
        rows = []
        while self.at < len(self.lines) and self.lines[self.at].startswith("|"):
            rows.append(self.lines[self.at])
            self.at += 1
        has_head = len(rows) > 1 and RULE.match(rows[1])
        body = rows[2:] if has_head else rows
        out = ['<div class="table"><table>']
        if has_head:
            heads = "".join(f"<th>{inline(cell)}</th>" for cell in cells(rows[0]))
            out.append(f"<thead><tr>{heads}</tr></thead>")
        out.append("<tbody>")
        for row in body:
            out.append("<tr>" + "".join(f"<td>{inline(c)}</td>" for c in cells(row)) + "</tr>")
        out.append("</tbody></table></div>")
        self.out.append("".join(out))

    def list(self, indent):
        """A list, and the lists in it, which are indented further."""
        tag = "ol" if NUMBERED.match(self.lines[self.at]) else "ul"
        items = []
        while self.at < len(self.lines):
            match = ITEM.match(self.lines[self.at])
            if not match or len(match.group(1)) < indent:
                break
            if len(match.group(1)) > indent:
                items[-1] += self.list(len(match.group(1)))
                continue
            text = [match.group(2)]
            self.at += 1
            while self.continues(indent):
                text.append(self.lines[self.at].strip())
                self.at += 1
            items.append(inline(" ".join(text)))
        is_long = len(items) > 20 and all(len(item) < 120 for item in items)
        mark = ' class="long"' if is_long else ""
        return f"<{tag}{mark}>" + "".join(f"<li>{item}</li>" for item in items) + f"</{tag}>"

    def continues(self, indent):
        """Whether the line goes on with the item above it."""
        line = self.lines[self.at] if self.at < len(self.lines) else ""
        return line.startswith(" " * (indent + 2)) and line.strip() and not ITEM.match(line)

    def paragraph(self):
        text = []
        while self.at < len(self.lines) and self.lines[self.at].strip():
            if text and BLOCK_START.match(self.lines[self.at]):
                break
            text.append(self.lines[self.at].strip())
            self.at += 1
        self.out.append(f"<p>{inline(' '.join(text))}</p>")


def contents(manual):
    """Pages in the order of index.md, with their titles."""
    order = re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", (manual / "index.md").read_text("utf-8"))
    return [("index.md", "Contents")] + [(name, title) for title, name in order]


def navigation(pages, current, up):
    links = []
    for name, title in pages:
        here = ' aria-current="page"' if name == current else ""
        inner = "/" in name and not name.endswith("/index.md") or name in TABLES
        mark = ' class="inner"' if inner else ""
        target = up + name.removesuffix(".md") + ".html"
        links.append(f'<li{mark}><a href="{target}"{here}>{html.escape(title)}</a></li>')
    return "<ul>" + "".join(links) + "</ul>"


SEARCH = """<form class="search" role="search"><label for="search">Search</label>
<input id="search" type="search" autocomplete="off" placeholder="Search the manual" data-up="UP">
<ul id="found" aria-live="polite" hidden></ul></form>
<script>
{
  const field = document.getElementById("search");
  const load = () => {
    field.removeEventListener("focus", load);
    document.head.append(Object.assign(document.createElement("script"), { src: "UPsearch.js" }));
  };
  field.addEventListener("focus", load);
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea")) { event.preventDefault(); field.focus(); }
  });
}
</script>"""


def document(page, body, pages, name):
    up = "../" * name.count("/")
    nav = navigation(pages, name, up)
    title = html.escape(page.title)
    # The pages of the reference begin with a list of their own.
    is_reference = name.startswith("directives/")
    sections = page.sections if len(page.sections) > 2 and not is_reference else []
    toc = "".join(f'<li><a href="#{i}">{html.escape(t)}</a></li>' for i, t in sections)
    toc = f'<nav class="toc" aria-label="On this page"><ul>{toc}</ul></nav>' if toc else ""
    head, _, rest = body.partition("\n")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - lighty</title>
<link rel="stylesheet" href="{up}../style.css">
<link rel="icon" href="{up}../favicon.svg" type="image/svg+xml">
</head>
<body class="manual">
<nav><a href="{up}../index.html">Start</a><a href="{up}../gallery/index.html">Gallery</a><a href="{up}index.html" aria-current="page">Manual</a></nav>
{SEARCH.replace("UP", up)}
<div class="columns">
<details class="pages" open><summary>Pages</summary>{nav}</details>
<main>
{head}
{toc}
{rest}
</main>
</div>
<script>if (matchMedia("(max-width: 60rem)").matches) document.querySelector("details.pages").open = false</script>
</body>
</html>
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip().split("\n")[0])
    manual, out = Path(sys.argv[1]), Path(sys.argv[2])
    pages = contents(manual)
    sections = []
    for source in sorted(manual.rglob("*.md")):
        name = source.relative_to(manual).as_posix()
        page = Page(source.read_text("utf-8"))
        body = page.render()
        target = Path(name).with_suffix(".html")
        write(out / target, document(page, body, pages, name))
        for anchor, heading, text in page.texts():
            sections.append([target.as_posix(), anchor, page.title, heading, text])
    for picture in manual.rglob("*.png"):
        write_bytes(out / picture.relative_to(manual), picture.read_bytes())
    index = json.dumps(sections, ensure_ascii=False, separators=(",", ":"))
    search = (Path(__file__).parent / "manual-search.js").read_text("utf-8")
    write(out / "search.js", f"const manualSections = {index};\n{search}")


def write(target, text):
    write_bytes(target, text.encode("utf-8"))


def write_bytes(target, content):
    """Whoever reads the file meanwhile sees the old one whole or the new one whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, target)


main()
