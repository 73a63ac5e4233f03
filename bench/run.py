#!/usr/bin/env python3
"""Make experiments, side by side with the peers, and write docs/experiments.md.

    run.py                  all that have no results of this binary yet: it goes on where it was cut
    run.py hot F5 3a        these, by name, figure, or lighttpd 1.5's figure
    run.py --list           which there are, what each shows, and what would disprove it

What comes behind `--` goes to each script: `run.py hot -- --rounds 1 --secs 1`.
"""
import hashlib
import json
import os
import subprocess
import sys
import time

import experiments
import rig


def main():
    argv, rest = sys.argv[1:], []
    if "--" in argv:
        argv, rest = argv[:argv.index("--")], argv[argv.index("--") + 1:]
    ap = rig.arguments(__doc__, "")
    ap.add_argument("experiments", nargs="*", metavar="E")
    ap.add_argument("--list", action="store_true", help="tell which there are")
    ap.add_argument("--again", action="store_true", help="also those that have results")
    ap.add_argument("--diskbed", default=os.environ.get("DISKBED"), metavar="DIR",
                    help="where diskbed.py is (or $DISKBED)")
    args = ap.parse_args(argv)
    wanted = experiments.chosen(args.experiments)
    if args.list:
        return listed(wanted)
    state = State(args)
    failed = []
    for one in wanted:
        why = state.why_not(one)
        if why:
            rig.say(f"{one.name}: {why}")
        elif not run(args, one, rest):
            failed.append(one.name)
        else:
            state.note(one)
            subprocess.run([f"{rig.HERE}/report.py", "--keep", "--results", args.out], check=True)
    if failed:
        raise rig.RigError("failed: " + ", ".join(failed))


def listed(wanted):
    for one in wanted:
        names = ", ".join([*(f"figure {f}" for f in one.figures), *one.ancestor]) or "-"
        rig.say(f"{one.name} ({names}; {one.minutes} min{', needs ' * bool(one.needs)}{one.needs})\n"
                f"    shows: {one.shows}\n    disproved by: {one.disproved}")


def run(args, one, rest):
    rig.say(f"--- {one.name}: {one.shows} (about {one.minutes} min)")
    argv = [one.script, "--out", args.out, "--lighty", args.lighty, *rest]
    if one.needs == "diskbed":
        argv += ["--diskbed", args.diskbed]
    return subprocess.run(argv).returncode == 0


class State:
    """Which experiments have been made with the binary: OUT/run.json."""

    def __init__(self, args):
        self.args, self.path = args, args.out + "/run.json"
        with open(args.lighty, "rb") as f:
            self.binary = hashlib.file_digest(f, "sha256").hexdigest()
        self.done = {}
        try:
            with open(self.path) as f:
                known = json.load(f)
            if known["binary"] == self.binary:
                self.done = known["done"]
        except (FileNotFoundError, ValueError, KeyError):
            pass

    def why_not(self, one):
        """Why an experiment is not made; nothing if it is."""
        if one.name in self.done and not self.args.again and not self.args.experiments:
            return f"made at {self.done[one.name]} with this binary (--again repeats it)"
        if one.needs == "diskbed" and not self.args.diskbed:
            return "left out: it needs diskbed (--diskbed DIR or $DISKBED)"
        return None

    def note(self, one):
        self.done[one.name] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        os.makedirs(self.args.out, exist_ok=True)
        with open(self.path + ".new", "w") as f:
            json.dump({"binary": self.binary, "done": self.done}, f)
        os.replace(self.path + ".new", self.path)


if __name__ == "__main__":
    try:
        main()
    except (rig.RigError, FileNotFoundError) as e:
        sys.exit(f"run: {e}")
