#!/usr/bin/env python3
"""Where the time of `make test` went, which tests were skipped or failed, and the sum.

    test_report.py [DIRECTORY]    what scripts/test.sh left there, target/gate by default

Prints a table of the steps (wall time, CPU seconds), of what was compiled by kind, of the test
programs, and the tests that took longest and used the processors least; then failures and skipped
tests. The last line is `N passed, N failed`. The exit status is 0 only if nothing failed and
every test that the profile `shipped` names has run.
"""
import collections
import glob
import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

LONGEST = 20
CONFIG = os.path.join(os.path.dirname(__file__), "..", ".config", "nextest.toml")

Test = collections.namedtuple("Test", "profile program name seconds cpu failure output")


def main():
    gate = sys.argv[1] if len(sys.argv) > 1 else "target/gate"
    steps = read_steps(gate)
    tests = [test for path in sorted(glob.glob(f"{gate}/junit.*.xml")) for test in read_tests(gate, path)]
    print_steps(steps)
    print_compiled(gate)
    print_programs(tests)
    print_longest(tests)
    print_skipped(tests)
    failed = [test for test in tests if test.failure]
    faults = [f"step {name}" for name, status, _, _ in steps if status != 0]
    faults += [f"shipped: no test {name}" for name in missing_in_shipped(tests)]
    for test in failed:
        print(f"\n---- {test.program} {test.name} ({test.profile})\n" + "\n".join(test.output.splitlines()[-60:]))
    for fault in faults:
        print(f"FAILED: {fault}")
    for test in failed:
        print(f"FAILED: {test.program} {test.name} ({test.profile})")
    # A step without tests of its own (lints, a build) counts as one failure.
    count = len(failed) or len(faults)
    print(f"{len(tests) - len(failed)} passed, {count} failed")
    sys.exit(1 if count else 0)


def read_steps(gate):
    """Name, exit status, wall seconds and CPU seconds of each step, in the order of their ends."""
    found = []
    for line in open(f"{gate}/steps"):
        name, status, _begun, wall, user, system = line.split()
        found.append((name, int(status), float(wall), float(user) + float(system)))
    return found


def read_tests(gate, path):
    """The tests of a JUnit report, with what each used of the processors."""
    profile = re.search(r"junit\.(.*)\.xml$", path)[1]
    used = read_cpu(f"{gate}/cpu.{profile}")
    for suite in ElementTree.parse(path).getroot():
        for case in suite.findall("testcase"):
            program, name = suite.get("name"), case.get("name")
            broken = case.find("failure") if case.find("failure") is not None else case.find("error")
            output = "".join(case.findtext(end) or "" for end in ("system-out", "system-err"))
            yield Test(profile, program, name, float(case.get("time")), used.get((program, name), 0.0),
                       broken is not None, output)


def read_cpu(directory):
    """{(test program, test): CPU seconds}, from what scripts/test-runner.sh wrote."""
    used = {}
    for entry in os.scandir(directory):
        head, _, text = open(entry.path).read().partition("\n")
        times = re.findall(r"(\d+)m([\d.]+)s", text)
        used[tuple(head.split(" ", 1))] = sum(int(minutes) * 60 + float(seconds) for minutes, seconds in times)
    return used


def print_steps(steps):
    print("\nstep                    wall     CPU  (seconds)")
    for name, status, wall, cpu in steps:
        print(f"{name:20} {wall:7.0f} {cpu:7.0f}{'' if status == 0 else '  FAILED'}")
    print(f"{'sum':28} {sum(cpu for *_, cpu in steps):7.0f}")


def print_compiled(gate):
    """Seconds that units of compilation took, by build and kind."""
    print("\ncompiled (seconds of work)    units  libraries'   own     test programs  build scripts")
    for path in sorted(glob.glob(f"{gate}/timing.*.html")):
        units = json.loads(re.search(r"const UNIT_DATA = (\[.*?\]);\n", open(path).read(), re.S)[1])
        kinds = collections.Counter()
        for unit in units:
            kinds[kind_of(unit)] += unit["duration"]
        name = re.search(r"timing\.(.*)\.html$", path)[1]
        print(f"{name:28} {len(units):6} {kinds['library']:11.0f} {kinds['own']:5.0f} {kinds['test']:17.0f}"
              f" {kinds['script']:14.0f}")


def kind_of(unit):
    if unit.get("mode") == "run-custom-build":
        return "script"
    if not unit["name"].startswith("lighty"):
        return "library"
    return "test" if "(test)" in unit.get("target", "") else "own"


def print_programs(tests):
    print("\ntest program                        tests   wall    CPU   idle  (seconds, summed over tests)")
    programs = collections.defaultdict(list)
    for test in tests:
        programs[f"{test.program} ({test.profile})" if test.profile != "default" else test.program].append(test)
    for name, its in sorted(programs.items(), key=lambda item: -sum(test.seconds for test in item[1])):
        wall, cpu = sum(test.seconds for test in its), sum(test.cpu for test in its)
        print(f"{name:35} {len(its):5} {wall:6.0f} {cpu:6.0f} {max(0, wall - cpu):6.0f}")


def print_longest(tests):
    for title, key in (("longest tests", lambda test: test.seconds),
                       ("tests that waited longest", lambda test: test.seconds - test.cpu)):
        print(f"\n{title:80}  wall    CPU")
        for test in sorted(tests, key=key, reverse=True)[:LONGEST]:
            print(f"{test.program + ' ' + test.name:80} {test.seconds:5.1f} {test.cpu:6.1f}")


def print_skipped(tests):
    reasons = collections.defaultdict(set)
    for test in tests:
        for reason in re.findall(r"^SKIPPED.*$", test.output, re.M):
            reasons[reason].add(f"{test.program} {test.name}")
    print(f"\n{sum(map(len, reasons.values()))} tests were skipped, whole or in part")
    for reason, names in sorted(reasons.items()):
        print(f"{reason}\n    " + "\n    ".join(sorted(names)))


def missing_in_shipped(tests):
    """Tests that the profile `shipped` names and that did not run: renamed ones, above all."""
    config = open(CONFIG).read()
    section = config[config.index("[profile.shipped]"):config.index("[profile.shipped.junit]")]
    ran = {test.name for test in tests if test.profile == "shipped"}
    return sorted(set(re.findall(r"test\(=([\w:]+)\)", section)) - ran)


if __name__ == "__main__":
    main()
