#!/usr/bin/env python3
"""Figure 5: no allocation for a warm request.

Runs the tests that count them (crates/lighty-server/tests/integration/allocations.rs: a worker in
the test's process, a counting global allocator) in release mode, and keeps what they print.
"""
import re
import subprocess
import sys

import rig


def main():
    args = rig.arguments(__doc__, "lighty").parse_args()
    argv = ["cargo", "test", "--release", "-p", "lighty-server", "--test", "integration", "--",
            "allocations::", "--nocapture", "--test-threads=1"]
    done = subprocess.run(argv, cwd=rig.REPO, capture_output=True, text=True)
    results = parse(done.stdout)
    rig.say(done.stdout if results["tests"] else done.stderr)
    results["ok"] = done.returncode == 0 and bool(results["tests"])
    results["test"] = " ".join(argv)
    rig.save(args, "allocations", results, {})


def parse(text):
    """{test: ok or FAILED} and the lines in which the test prints what it counted."""
    tests = dict(re.findall(r"^test (\S+) \.\.\. .*?(ok|FAILED)$", text, re.M | re.S))
    said = [line for line in text.splitlines() if "alloc" in line and not line.startswith("test ")]
    return {"tests": tests, "said": said}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"allocations: {e}")
