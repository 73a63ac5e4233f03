"""Hooks of mkdocs.yml: the navigation, the keywords of pages, and the Markdown that MkDocs reads
differently from forges. Pages stay plain Markdown without front matter."""

import re
from pathlib import Path

from mkdocs.structure.files import File

HERE = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")
FENCE = re.compile(r"^```")
ITEM = re.compile(r"^( *)([-*]|\d+\.) ")
TREE = HERE.parent.parent


def keywords():
    """Lines `page: keyword, keyword`; a line that begins with # is a comment."""
    found = {}
    for line in (HERE / "keywords.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            page, _, words = line.partition(":")
            found[page.strip()] = [word.strip() for word in words.split(",")]
    return found


def pages_of(index):
    """The links of an index page, beneath the heading that each stands under."""
    groups, heading = {}, ""
    for line in index.read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:].strip()
        for title, page in LINK.findall(line):
            groups.setdefault(heading, []).append((title, page))
    return groups


def table_code(match):
    """A code span with an escaped bar, which forges show as a bar, in entities."""
    text = match.group(1).replace("\\|", "|")
    return "<code>" + "".join(c if c.isalnum() else f"&#{ord(c)};" for c in text) + "</code>"


def on_config(config):
    """Pages stand in the order of index.md; recipes and directives beneath their own indexes."""
    manual = Path(config.docs_dir)
    nested = {
        "recipes/index.md": ["recipes/index.md"]
        + [
            {heading: [f"recipes/{page}" for _, page in links]}
            for heading, links in pages_of(manual / "recipes/index.md").items()
            if heading
        ],
        "directives/index.md": ["directives/index.md"]
        + sorted(
            f"directives/{path.name}"
            for path in (manual / "directives").glob("*.md")
            if path.name != "index.md"
        ),
    }
    nav = ["index.md"]
    for heading, links in pages_of(manual / "index.md").items():
        entries = [
            {title: nested[page] if page in nested else page}
            for title, page in links
            if not (page.startswith("directives/") and page not in nested)
            and not (page.startswith("recipes/") and page not in nested)
        ]
        nav += [{heading: entries}] if heading else entries
    config.nav = nav
    return config


def on_files(files, config):
    source = TREE / "examples/site/root/favicon.svg"
    files.append(File.generated(config, "favicon.svg", abs_src_path=str(source)))
    known = keywords()
    missing = [page for page in known if files.get_file_from_path(page) is None]
    if missing:
        raise ValueError(f"scripts/docs/keywords.txt names pages that do not exist: {missing}")
    return files


def on_page_markdown(markdown, page, config, files):
    """Adds the page's keywords, which the search weighs most and no reader sees; indents nested
    lists by four columns; shows bars in a table's code; drops the second word of a fence's language."""
    tags = keywords().get(page.file.src_uri)
    if tags:
        page.meta["tags"] = tags
        page.meta["hide"] = ["tags"]
    out, is_code, before = [], False, ""
    for line in markdown.splitlines():
        if FENCE.match(line):
            is_code = not is_code
            line = re.sub(r"^```(\w+) .*", r"```\1", line)
        if line.startswith("|") and not is_code:
            line = re.sub(r"`([^`]*\\\|[^`]*)`", table_code, line)
        item = None if is_code else ITEM.match(line)
        if item and before.strip() and not item.group(1) and not before.startswith(("-", "*", " ")):
            if not re.match(r"\d+\. ", before):
                out.append("")
        if item and item.group(1):
            line = "  " + line if len(item.group(1)) < 4 else line
        out.append(line)
        before = line
    return "\n".join(out)
