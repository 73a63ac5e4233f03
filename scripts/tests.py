#!/usr/bin/env python3
"""Build tests and run them, several programs at a time: most wait for a time limit most of the time.

    tests.py ARGUMENTS OF CARGO TEST

A program's output is shown whole once it has ended, in the form of `cargo test`. The exit status
is 0 only if all were built and passed. `LIGHTY_TEST_PROGRAMS` is how many run at a time, one more
than there are processors by default.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

# These take longest: what begins first does not end last.
FIRST = ("simulation", "lighttpd_compat", "reload", "lighty_lua")


def main(arguments):
    programs = built(arguments)
    slots = int(os.environ.get("LIGHTY_TEST_PROGRAMS") or (os.cpu_count() or 1) + 1)
    begun = time.monotonic()
    failed = []
    with concurrent.futures.ThreadPoolExecutor(slots) as pool:
        runs = {pool.submit(run, p): p for p in programs}
        for done in concurrent.futures.as_completed(runs):
            status, output, seconds = done.result()
            name, path = runs[done]["name"], runs[done]["executable"]
            print(f"     Running {name} ({os.path.relpath(path)}), {seconds:.0f} s\n{output}", flush=True)
            if status != 0:
                failed.append(name)
                print(f"error: test failed: {name} ended with {status}", flush=True)
    print(f"test programs: {len(programs)}, {slots} at a time, {time.monotonic() - begun:.0f} s")
    if failed:
        sys.exit("failed: " + ", ".join(sorted(failed)))


def built(arguments):
    """The programs that `cargo test` would run: name, package directory, executable."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if out.returncode != 0:
        sys.exit("the tests cannot be built")
    found = []
    for line in out.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            found.append({"name": message["target"]["name"], "executable": message["executable"],
                          "directory": os.path.dirname(message["manifest_path"])})
    if not found:
        sys.exit("there is no test")
    return sorted(found, key=lambda p: FIRST.index(p["name"]) if p["name"] in FIRST else len(FIRST))


def run(program):
    begun = time.monotonic()
    done = subprocess.run([program["executable"]], cwd=program["directory"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          env=dict(os.environ, CARGO_MANIFEST_DIR=program["directory"]))
    return done.returncode, done.stdout, time.monotonic() - begun


if __name__ == "__main__":
    main(sys.argv[1:])
