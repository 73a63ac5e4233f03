"""Where a server's CPU goes by its source: samples of perf, with what the compiler put inline.

A sample counts for a subject where a function of its inline chain lies in a file, or has a name,
that the subject's pattern matches. That finds shares of a hundredth, which the clock of two runs
side by side does not. It needs perf and binutils, and line tables in the binary.
"""
import collections
import re
import subprocess
import threading

import rig
import servers

FREQUENCY = 8000


def missing(args):
    """What of the tools is not installed; empty if nothing."""
    return [tool for tool in ("perf", "addr2line", "readelf") if not servers.binary(args, tool)]


def shares(args, running, subjects, secs, load):
    """{subject: per cent of the samples, "samples": how many}, taken while load() runs.

    subjects is {subject: pattern}; the first that matches has the sample.
    """
    data = args.out + "/perf.data"
    asking = threading.Thread(target=load)
    asking.start()
    try:
        run("perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "-o", data,
            "-p", str(running.pid), "sleep", str(secs))
    finally:
        asking.join()
    text = run("perf", "script", "-i", data, "-F", "ip,dso", "--show-mmap-events")
    total, offsets = parse_samples(text, args.lighty)
    chains = inlined(args.lighty, offsets)
    found = collections.Counter()
    for chain, count in zip(chains, offsets.values(), strict=True):
        found[next((s for s, p in subjects.items() if re.search(p, chain)), None)] += count
    return {"samples": total} | {s: rig.ratio(100 * found[s], total) for s in subjects}


def run(*argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", **options)
    if done.returncode != 0:
        raise rig.RigError(f"{argv[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def parse_samples(text, binary):
    """(samples in all, {offset in the binary's file: samples}) of what perf script prints."""
    total, start, from_offset, offsets = 0, 0, 0, collections.Counter()
    for line in text.splitlines():
        mapped = re.search(r"\[0x([0-9a-f]+)\(0x[0-9a-f]+\) @ (?:0x)?([0-9a-f]+) .*r-xp (.*)", line)
        if mapped:
            if mapped.group(3) == binary:
                start, from_offset = int(mapped.group(1), 16), int(mapped.group(2), 16)
            continue
        sample = re.match(r"\s*([0-9a-f]+) \((.*)\)$", line)
        if sample:
            total += 1
            if sample.group(2) == binary:
                offsets[int(sample.group(1), 16) - start + from_offset] += 1
    return total, offsets


def inlined(binary, offsets):
    """For each offset the functions and places that its instruction stands for, as one text."""
    headers = run("readelf", "-lW", binary)
    at, address = (int(n, 16) for n in
                   re.search(r"LOAD\s+(0x\w+) (0x\w+) .* R E ", headers).groups())
    asked = "\n".join(hex(offset - at + address) for offset in offsets)
    told = run("addr2line", "-aifC", "-e", binary, input=asked)
    return re.split(r"^0x[0-9a-f]+\n", told, flags=re.M)[1:]
