#!/usr/bin/env python3
"""The crates and C libraries that a binary of lighty contains.

    supply.py sbom       [--features F] [--no-default-features]    a CycloneDX bill of materials, JSON
    supply.py notices    ...    the licence texts of all of them, in one text
    supply.py copyright  ...    the same for Debian: debian/copyright, machine-readable
    supply.py licence    ...    the licence expression of the whole binary

All are made from Cargo.lock and the crates' sources that cargo has downloaded; nothing is fetched.
--target NAME is the platform (default: the host). The output depends on these alone, and on
SOURCE_DATE_EPOCH, so that it is the same wherever it is made.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.I)

# A phrase of each licence, by which its text is found; in the order in which a licence is chosen
# where a crate offers several.
PHRASES = {
    "MIT": "Permission is hereby granted, free of charge",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "ISC": "Permission to use, copy, modify, and",
    "Zlib": "This software is provided 'as-is'",
    "bzip2-1.0.6": "bzip2",
    "Unlicense": "This is free and unencumbered software",
    "Unicode-3.0": "UNICODE LICENSE V3",
    "Apache-2.0 WITH LLVM-exception": "LLVM Exceptions",
    "Apache-2.0": "Apache License",
    "blessing": "The author disclaims copyright",
}
DEBIAN_NAMES = {"MIT": "Expat", "BSD-3-Clause": "BSD-3-clause", "blessing": "public-domain"}


class Missing(Exception):
    pass


def output(*command):
    return subprocess.run(command, cwd=TREE, check=True, stdout=subprocess.PIPE, text=True).stdout


class Component:
    """A crate, a C library in a crate, or the standard library."""

    def __init__(self, name, version, licence, texts, *, crate=None, checksum=None, package=None):
        self.name, self.version, self.licence, self.texts = name, version, licence, texts
        self.crate, self.checksum, self.package = crate, checksum, package or {}

    def holders(self):
        """The lines of copyright of its texts, or its authors."""
        found = []
        for text in self.texts:
            for line in text.splitlines():
                line = line.strip(" \t*#/-=|.")
                if re.match(r"(copyright|©)", line, re.I) and re.search(r"\d{4}|\(c\)|©", line, re.I):
                    holder = re.sub(r"^(copyright|\(c\)|©|:|\s)+", "", line, flags=re.I)
                    holder = re.sub(r"\s*all rights reserved.*", "", holder, flags=re.I).strip()
                    # Some texts have blanks to fill in.
                    if holder and not re.search(r"[{[<]y|[{[]", holder) and holder not in found:
                        found.append(holder)
        authors = [re.sub(r"\s*<.*", "", author) for author in self.package.get("authors", [])]
        return found or authors or [f"the authors of {self.name}"]


def crates(arguments):
    """{(name, version)} of the crates that are linked: no macros, no build scripts."""
    command = ["cargo", "tree", "--locked", "--offline", "-p", "lighty", "-e", "normal,no-proc-macro"]
    command += ["--prefix", "none", "-f", "{p}", "--target", arguments.target]
    if arguments.no_default_features:
        command.append("--no-default-features")
    if arguments.features:
        command += ["--features", arguments.features]
    found = set()
    for line in output(*command).splitlines():
        match = re.match(r"(\S+) v(\S+)(.*)", line)
        if match and "(proc-macro)" not in match[3] and str(TREE) not in match[3]:
            found.add((match[1], match[2]))
    return found


def components(arguments):
    bundled = tomllib.loads((HERE / "bundled.toml").read_text())
    lock = tomllib.loads((TREE / "Cargo.lock").read_text())["package"]
    checksums = {(row["name"], row["version"]): row.get("checksum") for row in lock}
    versions = {row["name"]: row["version"] for row in lock}
    linked = crates(arguments)
    # The sources of Lua are a dependency of a build script.
    if any(name == "mlua-sys" for name, _ in linked):
        lua = "lua-src" if "lua54" in (arguments.features or "") else "luajit-src"
        linked.add((lua, versions[lua]))
    libraries = {row["crate"]: row for row in bundled["library"]}
    found = [standard_library()]
    for name, version in sorted(linked):
        source = unpacked(name, version)
        package = tomllib.loads((source / "Cargo.toml").read_text())["package"]
        other = bundled["text-of"].get(name, name)
        texts = licence_texts(source) or licence_texts(unpacked(other, versions[other]))
        if not texts:
            raise Missing(f"{name}: no text of its licence; name another crate in packaging/bundled.toml")
        row = Component(name, version, plain(package["license"]), texts, crate=name,
                        checksum=checksums[name, version], package=package)
        found.append(row)
        if name in libraries:
            found.append(library(libraries[name], source, version))
        elif re.search(r"-(sys|src)$", name) and name not in bundled["not-bundled"]:
            raise Missing(f"{name}: name the library in it in packaging/bundled.toml")
    for row in found:
        if (name := libraries.get(row.crate, {}).get("text-of")) and row.name != row.crate:
            row.texts[0] += "\n" + body(name, found) + "\n"
    return found


def unpacked(name, version):
    """The directory where cargo has unpacked a crate."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    for directory in sorted(home.glob(f"registry/src/*/{name}-{version}")):
        return directory
    raise Missing(f"{name} {version} is not in {home}/registry/src: build lighty first")


def plain(expression):
    """An expression without the slashes of former times."""
    return re.sub(r"\s*/\s*", " OR ", expression)


def licence_texts(source):
    files = sorted(path for path in source.iterdir() if LICENCE_FILE.match(path.name) and path.is_file())
    return [path.read_text("utf-8", "replace") for path in files if path.suffix not in (".rs", ".html")]


def library(row, source, version):
    texts = [(source / path).read_text("utf-8", "replace") for path in row.get("texts", [])]
    if "header" in row:
        text = (source / row["header"]).read_text("utf-8", "replace")
        # As many comments as stand in front of the code.
        comments = re.match(r"(\s*/\*.*?\*/)+", text, re.S)[0]
        texts.append(re.sub(r"^[ /*]+|[ /*]+$", "", comments, flags=re.M).strip() + "\n")
    version = re.sub(r"^[a-z]+\.", "", version.split("+")[-1])
    if "version" in row:
        path, expression = row["version"]
        text = next(source.glob(path)).read_text("utf-8", "replace")
        match = re.search(expression, text)
        if not match:
            raise Missing(f"{row['name']}: no version in {path}; change its row in packaging/bundled.toml")
        version = ".".join(str(int(part)) if part.isdigit() else part for part in match.groups())
    return Component(row["name"], version, row["licence"], texts, crate=row["crate"])


def standard_library():
    version = re.match(r"rustc (\S+)", output("rustc", "-V"))[1]
    documents = Path(output("rustc", "--print", "sysroot").strip()) / "share/doc/rust"
    texts = []
    for path in ("licenses/MIT.txt", "LICENSE-MIT", "licenses/Apache-2.0.txt", "LICENSE-APACHE"):
        if (documents / path).exists():
            texts.append((documents / path).read_text())
    texts = texts or ["See https://www.rust-lang.org/policies/licenses\n"]
    package = {"authors": ["The Rust Project Developers"]}
    return Component("rust-std", version, "MIT OR Apache-2.0", texts, package=package)


def choices(expression):
    """The licences that apply: of each list of alternatives the one that asks least."""
    chosen = []
    for part in re.split(r"\bAND\b", expression):
        options = [option.strip(" ()") for option in re.split(r"\bOR\b", part)]
        known = [name for name in PHRASES if name in options]
        if not known:
            raise Missing(f"{expression}: none of these licences is known to packaging/supply.py")
        chosen.append(known[0])
    return list(dict.fromkeys(chosen))


def own_version():
    return re.search(r'^version = "([^"]+)"', (TREE / "Cargo.toml").read_text(), re.M)[1]


def sbom(rows, arguments):
    version = own_version()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    stamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    own = {"type": "application", "bom-ref": "lighty", "name": "lighty", "version": version,
           "licenses": [{"license": {"id": "BSD-3-Clause"}}]}
    listed = [bill_row(row) for row in rows]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": stamp, "component": own},
        "components": listed,
        "dependencies": [{"ref": "lighty", "dependsOn": sorted(row["bom-ref"] for row in listed)}],
    }
    # A number that depends on the content alone.
    text = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def bill_row(row):
    if row.checksum:
        identity = f"pkg:cargo/{row.name}@{row.version}"
    else:
        identity = f"pkg:generic/{row.name.lower()}@{row.version}"
    licence = row.licence
    if licence == "blessing":
        licences = [{"license": {"id": "blessing"}}]
    else:
        licences = [{"expression": licence}]
    found = {"type": "library", "bom-ref": identity, "name": row.name, "version": row.version,
             "purl": identity, "licenses": licences}
    if row.checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": row.checksum}]
    if row.package.get("description"):
        found["description"] = " ".join(row.package["description"].split())
    if row.package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": row.package["repository"]}]
    if row.crate and row.crate != row.name:
        found["properties"] = [{"name": "lighty:crate", "value": row.crate}]
    return found


def notices(rows, arguments):
    by_text = {}
    for row in rows:
        for text in row.texts:
            key = " ".join(text.split())
            by_text.setdefault(key, (text, []))[1].append(f"{row.name} {row.version}")
    out = ["The binary of lighty contains the libraries below, under these licences.\n"]
    out += [f"{row.name} {row.version}: {row.licence}" for row in rows]
    for text, users in by_text.values():
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        out.append("\n" + "=" * 80 + "\n" + ", ".join(users) + "\n" + "-" * 80 + "\n\n" + lines)
    return "\n".join(out) + "\n"


def copyright(rows, arguments):
    out = ["Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
           "Upstream-Name: lighty", "Comment:",
           " The binary contains the crates and libraries below; third-party.txt.gz beside this file",
           " has their licences as they came.", "",
           "Files: *", "Copyright: 2026, the lighty authors", "License: BSD-3-clause", ""]
    used = {"BSD-3-Clause"}
    for row in rows:
        chosen = choices(row.licence)
        used.update(chosen)
        out += [f"Files: vendor/{row.name}-{row.version}/*", "Copyright: " + "\n ".join(row.holders()),
                "License: " + " and ".join(debian_name(name) for name in chosen), ""]
    for name in PHRASES:
        if name in used:
            out += [f"License: {debian_name(name)}", debian_text(name, rows), ""]
    return "\n".join(out)


def debian_name(name):
    name = DEBIAN_NAMES.get(name, name)
    return name.replace(" WITH LLVM-exception", " with LLVM exception")


def debian_text(name, rows):
    """The body of a licence in the form of debian/copyright."""
    if name.startswith("Apache-2.0"):
        text = "The full text is in /usr/share/common-licenses/Apache-2.0 on Debian systems."
        if "LLVM" in name:
            text += "\n" + exception(rows)
        return indented(text)
    return indented(body(name, rows))


def body(name, rows):
    """The text of a licence without lines of copyright, from a crate under it."""
    candidates = [text for row in rows for text in row.texts if name in choices(row.licence)]
    if name == "BSD-3-Clause":
        candidates = [(TREE / "LICENSE").read_text()]
    fitting = [text for text in candidates if PHRASES[name] in text]
    if not fitting:
        raise Missing(f"no text of {name} found in the crates")
    text = min(fitting, key=lambda text: (len(text), text))
    kept = [line for line in text.splitlines() if not re.match(r"\W*(copyright|\(c\))", line, re.I)]
    return "\n".join(kept).strip("\n")


def exception(rows):
    for row in rows:
        for text in row.texts:
            at = text.find("LLVM Exceptions")
            if at >= 0:
                return text[at:].strip("- \n").removeprefix("LLVM Exceptions to the Apache 2.0 License ----")
    raise Missing("no text of the LLVM exception found in the crates")


def indented(text):
    return "\n".join(" " + line.rstrip() if line.strip() else " ." for line in text.splitlines())


def licence(rows, arguments):
    chosen = {"BSD-3-Clause"}
    for row in rows:
        chosen.update(choices(row.licence))
    return " AND ".join(sorted(chosen)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["sbom", "notices", "copyright", "licence"])
    parser.add_argument("--features")
    parser.add_argument("--no-default-features", action="store_true")
    parser.add_argument("--target")
    arguments = parser.parse_args()
    if arguments.target is None:
        arguments.target = re.search(r"^host: (\S+)", output("rustc", "-vV"), re.M)[1]
    try:
        print(globals()[arguments.what](components(arguments), arguments), end="")
    except Missing as missing:
        sys.exit(f"supply.py: {missing}")


if __name__ == "__main__":
    main()
