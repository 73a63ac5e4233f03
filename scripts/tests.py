#!/usr/bin/env python3
"""Build tests and run them, several programs at a time: most wait for a time limit most of the time.

    tests.py [NAME=VALUE ...] ARGUMENTS OF CARGO TEST [--and [NAME=VALUE ...] ARGUMENTS ...]

All are built first, in the order given; the programs of each get the variables before its
arguments. What the later builds put in the place of the earlier, the earlier programs find too: a
binary that they are to start is named by a variable.

A program's output is shown whole once it has ended, in the form of `cargo test`. The exit status
is 0 only if all were built and passed. `LIGHTY_TEST_PROGRAMS` is how many run at a time, one more
than there are processors by default.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

# These take longest: what begins first does not end last.
FIRST = ("simulation", "lighttpd_compat", "reload", "lighty_lua")


def main(arguments):
    programs = [program for group in groups(arguments) for program in built(*group)]
    programs.sort(key=lambda p: FIRST.index(p["name"]) if p["name"] in FIRST else len(FIRST))
    slots = int(os.environ.get("LIGHTY_TEST_PROGRAMS") or (os.cpu_count() or 1) + 1)
    begun = time.monotonic()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(slots) as pool:
        runs = {pool.submit(run, p): p for p in programs}
        for done in concurrent.futures.as_completed(runs):
            status, output, seconds, cpu = done.result()
            name, path = runs[done]["name"], runs[done]["executable"]
            print(f"     Running {name} ({os.path.relpath(path)}), {seconds:.0f} s, {cpu:.0f} s of CPU\n"
                  f"{output}", flush=True)
            if status != 0:
                failed.append(name)
                print(f"error: test failed: {name} ended with {status}", flush=True)
    print(f"test programs: {len(programs)}, {slots} at a time, {time.monotonic() - begun:.0f} s")
    if failed:
        sys.exit("failed: " + ", ".join(sorted(failed)))


def groups(arguments):
    """Variables and arguments of each call of `cargo test`."""
    while arguments:
        end = arguments.index("--and") if "--and" in arguments else len(arguments)
        group, arguments = arguments[:end], arguments[end + 1:]
        words = next((i for i, word in enumerate(group) if word.startswith("-")), len(group))
        yield dict(word.split("=", 1) for word in group[:words]), group[words:]


def built(variables, arguments):
    """The programs that `cargo test` would run: name, package directory, executable, variables."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if out.returncode != 0:
        sys.exit("the tests cannot be built")
    found = []
    for line in out.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            found.append({"name": message["target"]["name"], "executable": message["executable"],
                          "directory": os.path.dirname(message["manifest_path"]),
                          "variables": variables})
    if not found:
        sys.exit("there is no test")
    return found


def run(program):
    """Its exit status, its output, how long it took, and the CPU time of it and its children."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([program["executable"]], cwd=program["directory"], stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=subprocess.STDOUT,
                                 env=dict(os.environ, CARGO_MANIFEST_DIR=program["directory"],
                                          **program["variables"]))
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        out.seek(0)
        output = out.read().decode(errors="replace")
    return child.returncode, output, seconds, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
