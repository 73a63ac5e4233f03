#!/usr/bin/env python3
"""Tests of the measuring tools themselves: `python3 bench/test_bench.py` (a few seconds)."""
import json
import os
import socket
import sys
import tempfile
import threading
import time
import types
import unittest

import allocations
import balance
import bed
import client
import drills
import experiments
import failover
import floods
import generators
import hot
import http2
import operated
import operations_report
import pages
import proxied_uploads
import refusals
import reload
import report
import rig
import rules
import run
import sampled
import servers
import short
import slow
import stallfs
import steady

WRK = """\
  Thread Stats   Avg      Stdev     Max   +/- Stdev
  Latency Distribution
     50%    1.20ms
     99%    1.50ms
  {n} requests in 2.00s, 1.50MB read
  Socket errors: connect 0, read 2, write 0, timeout 1
  Non-2xx or 3xx responses: 4
Requests/sec:  500.00
"""
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 54.00    0.105398           1      1000           epoll_wait
 46.00    0.089780           1      2000        17 recvfrom
------ ----------- ----------- --------- --------- ----------------
100.00    0.195178           1      3000        17 total
"""
SAMPLES = """\
 PERF_RECORD_MMAP2 9/9: [0x5600000fe000(0xaf0000) @ 0x4fe000 fe:00 1 2]: r-xp /x/lighty
 PERF_RECORD_MMAP2 9/9: [0x7f0000000000(0x1000) @ 0 fe:00 3 4]: r-xp /lib/libc.so.6
     5600000fe010 (/x/lighty)
     5600000fe010 (/x/lighty)
 ffffffff8226e639 ([kernel.kallsyms])
"""


class Parsing(unittest.TestCase):
    def test_wrk(self):
        r = rig.parse_wrk(WRK.format(n=1000))
        self.assertEqual((r["requests"], r["rps"], r["bad"], r["p99_ms"]), (1000, 500.0, 7, 1.5))
        self.assertEqual(r["bytes"], 1.5 * 2**20)
        with self.assertRaises(rig.RigError):
            rig.parse_wrk("unable to connect")

    def test_generators(self):
        r = generators.parse_wrk(WRK.format(n=1000))
        self.assertEqual((r["requests"], r["p50_ms"], r["p99_ms"]), (1000, 1.2, 1.5))
        said = {"summary": {"requestsPerSec": 9.5}, "statusCodeDistribution": {"200": 7, "404": 2},
                "errorDistribution": {"aborted due to deadline": 64, "refused": 1},
                "latencyPercentiles": {"p50": 0.001, "p90": 0.002, "p99": 0.5, "p99.9": None}}
        r = generators.parse_oha(json.dumps(said))
        self.assertEqual((r["requests"], r["rps"], r["bad"]), (9, 9.5, 3))
        self.assertEqual((r["p50_ms"], r["p99_ms"], r["p999_ms"]), (1.0, 500.0, 0))
        for parse in (generators.parse_load, generators.parse_oha, generators.parse_wrk):
            with self.assertRaises(rig.RigError):
                parse("error: connection refused")

    def test_s_time(self):
        text = "No CIPHER specified\nstarting\nrrr*r\n\n5 connections in 0.01s; 9 connections/user sec\n" \
               "5 connections in 2 real seconds, 2221 bytes read per connection\n"
        self.assertEqual(short.parse_s_time(text), {"requests": 5, "rps": 2.5, "bad": 1})
        with self.assertRaises(rig.RigError):
            short.parse_s_time("starting\nConnection refused")

    def test_h2load(self):
        text = "finished in 1.50s, 4000.00 req/s, 1MB/s\nrequests: 6000 total, 5990 succeeded, 10 failed"
        self.assertEqual(pages.parse_h2load(text, 6000), {"requests": 5990, "rps": 4000.0, "bad": 10})
        with self.assertRaises(rig.RigError):
            pages.parse_h2load("Could not connect", 6000)

    def test_strace(self):
        self.assertEqual(hot.parse_strace(STRACE), {"epoll_wait": 1000, "recvfrom": 2000})
        self.assertEqual(hot.io_calls({"epoll_wait": 1, "recvfrom": 1, "sendto": 1}), 2)

    def test_samples_are_placed_in_the_file(self):
        total, places = sampled.parse_samples(SAMPLES, "/x/lighty")
        self.assertEqual((total, dict(places)), (3, {0x4fe010: 2}))

    def test_allocations(self):
        said = "test warm ... 44 B: 0 allocations\nok\ntest cold ... FAILED\n"
        self.assertEqual(allocations.parse(said)["tests"], {"warm": "ok", "cold": "FAILED"})

    def test_a_command_is_shown_without_this_machines_directories(self):
        argv = ["/x/bench/cold.py", "--out", "/x", "--speed", "4", "--state=/y", "--diskbed", "/z"]
        self.assertEqual(rig.command_line(argv), "bench/cold.py --speed 4")

    def test_percentiles_are_of_the_values(self):
        values = list(range(100, -1, -1))
        self.assertEqual([rig.percentile(values, p) for p in (0, 50, 99, 100)], [0, 50, 99, 100])
        self.assertEqual(rig.percentile([], 99), 0)

    def test_a_pattern_tells_offsets_apart(self):
        data = rig.pattern("x", 1000)
        lines = [data[i:i + rig.LINE_BYTES] for i in range(0, 1000, rig.LINE_BYTES)]
        self.assertEqual((len(data), len(set(lines))), (1000, len(lines)))


class Scripted:
    """A server that answers every request with `answer`; the one numbered `slow` late."""

    def __init__(self, answer, slow=None, late_s=0.0):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.answer, self.slow, self.late_s = answer, slow, late_s
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        s, _ = self.listener.accept()
        n = 0
        with s:
            while s.recv(4096):
                if n == self.slow:
                    time.sleep(self.late_s)
                s.sendall(self.answer)
                n += 1

    def close(self):
        self.listener.close()
        self.thread.join()


class Clients(unittest.TestCase):
    def test_a_stop_is_charged_to_every_request_that_was_due(self):
        server = Scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", slow=10, late_s=0.5)
        latencies, failed = client.paced(server.port, "/", 100, 0.9)
        server.close()
        self.assertEqual(failed, 0)
        self.assertGreater(sum(ms > 100 for ms in latencies), 30)

    def test_a_cut_answer_is_not_whole(self):
        ours, theirs = socket.socketpair()
        theirs.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfour")
        theirs.close()
        with ours:
            answer = client.read_answer(ours)
        self.assertEqual((answer.status, answer.announced, answer.body, answer.closed),
                         (200, 5, b"four", True))
        self.assertFalse(answer.whole)

    def test_a_connection_closed_without_a_word_is_status_0(self):
        ours, theirs = socket.socketpair()
        theirs.close()
        with ours:
            self.assertEqual(client.read_answer(ours).status, 0)


class Processes(unittest.TestCase):
    def test_a_server_is_started_measured_and_ended(self):
        with tempfile.TemporaryDirectory() as out:
            port = rig.free_port()
            argv = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
            with rig.serving("python", argv, port, out + "/log", core=None) as server:
                pid = server.pid
                self.assertGreater(rig.memory_kib(pid), 1000)
                self.assertGreater(rig.cpu_s(pid), 0)
            self.assertFalse(os.path.exists(f"/proc/{pid}/fd"))

    def test_a_server_that_does_not_start_says_why(self):
        with tempfile.TemporaryDirectory() as out:
            argv = [sys.executable, "-c", "raise SystemExit('no such directive')"]
            with self.assertRaisesRegex(rig.RigError, "no such directive"):
                rig.start("x", argv, rig.free_port(), out + "/log", core=None)

    def test_the_loop_of_a_threaded_server_is_its_worker(self):
        pid, stop = os.getpid(), threading.Event()
        self.assertEqual(bed.loop_threads([pid]), [f"/proc/{pid}/task/{pid}"])
        worker = threading.Thread(target=stop.wait)
        worker.start()
        try:
            task = f"/proc/{pid}/task/{worker.native_id}"
            with open(task + "/comm", "w") as f:
                f.write("worker-0")
            self.assertEqual(bed.loop_threads([pid]), [task])
            self.assertIn(bed.state_of(task), ("R", "S"))
        finally:
            stop.set()
            worker.join()
        self.assertEqual(bed.state_of(f"/proc/{pid}/task/none"), "")

    def test_every_template_is_filled_in(self):
        with tempfile.TemporaryDirectory() as out:
            args = rig.arguments("", "lighty,nginx,lighttpd,h2o").parse_args(["--out", out])
            for name in ("lighty:auto+pool+inline", "nginx:aio", "nginx:8w", "lighttpd", "h2o",
                         "caddy"):
                servers_binary, servers.binary = servers.binary, lambda _args, base: base
                try:
                    argv, _port = servers.maker(args, name, servers.Tuning(idle_s=9))()
                finally:
                    servers.binary = servers_binary
                with open(argv[-1]) as f:
                    self.assertNotRegex("".join(x for x in f if x[0] != "#"), "@[A-Z]+@")


    def test_rules_are_as_many_as_they_are_called(self):
        for make, count in ((rules.rewrites, rules.REWRITES),
                            (rules.beginnings, rules.CONDITIONS),
                            (rules.patterns, rules.CONDITIONS)):
            for base, text in make().items():
                lines = [x for x in text.splitlines() if "server.modules" not in x]
                self.assertEqual(sum("/" in x for x in lines), count, base)

    def test_rules_reach_the_configuration(self):
        with tempfile.TemporaryDirectory() as out:
            args = rig.arguments("", "lighty").parse_args(["--out", out])
            real, servers.binary = servers.binary, lambda _args, base: base
            tuning = servers.Tuning(rules={"lighty": "mark", "nginx": "mark", "lighttpd": "mark"})
            try:
                for name in ("lighty", "nginx", "lighttpd"):
                    argv, _port = servers.maker(args, name, tuning)()
                    with open(argv[-1]) as f:
                        self.assertIn("mark", f.read())
            finally:
                servers.binary = real

    def test_every_proxy_template_is_filled_in(self):
        with tempfile.TemporaryDirectory() as out:
            args = rig.arguments("", "lighty").parse_args(["--out", out])
            real, servers.binary = servers.binary, lambda _args, base: base
            try:
                for name in ("lighty:sqf", "nginx:least_conn", "nginx", "haproxy", "lighttpd",
                             "caddy"):
                    text = self.configuration(args, name, (7001, 7002))
                    self.assertNotRegex(text, "@[A-Z]+@")
                    self.assertIn("7001", text)
                    self.assertIn("7002", text)
                self.assertIn("7001", self.configuration(args, "h2o", (7001,)))
                with self.assertRaises(rig.RigError):
                    self.configuration(args, "h2o", (7001, 7002))
            finally:
                servers.binary = real

    def test_every_template_for_php_is_filled_in(self):
        with tempfile.TemporaryDirectory() as out:
            args = rig.arguments("", "lighty").parse_args(["--out", out])
            real, servers.binary = servers.binary, lambda _args, base: base
            tuning = servers.Tuning(idle_s=9, php="/run/php", children=3)
            try:
                for name in ("lighty", "nginx", "nginx:keep", "lighttpd"):
                    argv, _port = servers.maker(args, name, tuning)()
                    with open(argv[-1]) as f:
                        text = "".join(x for x in f if x[0] != "#")
                    self.assertNotRegex(text, "@[A-Z]+@")
                    self.assertIn("/run/php/" + name.replace(":", "-") + ".sock", text)
                with self.assertRaises(rig.RigError):
                    servers.maker(args, "h2o", tuning)()
            finally:
                servers.binary = real

    def configuration(self, args, name, backends):
        argv, _port = servers.maker(args, name, servers.Tuning(idle_s=9, backends=backends))()
        with open(argv[-1]) as f:
            return "".join(x for x in f if x[0] != "#")


class SlowBackend(unittest.TestCase):
    def test_places_are_taken_in_order_and_a_late_timer_costs_nothing(self):
        backend = slow.Backend(1.0, 2)
        done = [backend.done_at(now) for now in (10, 10, 10.5, 11.75, 20)]
        self.assertEqual(done, [11, 11, 12, 12.75, 21])
        self.assertEqual(backend.count, 5)

    def test_it_answers_counts_and_leaves_politely(self):
        with tempfile.TemporaryDirectory() as out:
            port = rig.free_port()
            argv = [sys.executable, rig.HERE + "/slow.py", str(port), "1", "2"]
            with rig.serving("slow", argv, port, out + "/log", core=None) as server:
                client.keep_alive_requests(port, "/index.html", 3)
                self.assertEqual(client.fetch(port, "/count").body, b"3")
                with client.connect(port) as idle:
                    idle.sendall(client.head("/"))
                    self.assertTrue(client.read_answer(idle).whole)
                    server.process.terminate()
                    self.assertEqual(client.receive(idle), b"")
                self.assertEqual(server.process.wait(5), 0)


class Failover(unittest.TestCase):
    def test_latencies_are_told_apart_by_when_the_backend_went(self):
        samples = [(0.1, 9, True), (1.0, 0.001, True), (1.9, 0.2, True), (2.5, 0.1, False),
                   (3.5, 8, True)]
        r = failover.judge(samples, start=0, at=2, down_s=0)
        self.assertEqual((r["lost"], r["requests"]), (1, 5))
        self.assertAlmostEqual(r["before_p99_ms"], 1)
        self.assertAlmostEqual(r["after_p99_ms"], 9000)


@unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/fuse"), "needs root and FUSE")
class StallingFileSystem(unittest.TestCase):
    def test_it_serves_stalls_and_fails(self):
        with tempfile.TemporaryDirectory() as out, stallfs.mounted(out + "/m") as command:
            with open(out + "/m/7.bin", "rb") as f:
                self.assertEqual(len(f.read()), stallfs.FILE_BYTES)
            self.assertFalse(os.path.exists(out + "/m/none.bin"))
            with self.assertRaises(OSError), open(out + "/m/eio.bin", "rb") as f:
                f.read()
            command("stall reads 0.3")
            start = time.monotonic()
            os.stat(out + "/m/8.bin")
            self.assertLess(time.monotonic() - start, 0.25)
            with open(out + "/m/8.bin", "rb") as f:
                f.read()
            self.assertGreaterEqual(time.monotonic() - start, 0.25)
            command("stall all 0.3")
            start = time.monotonic()
            os.stat(out + "/m/9.bin")
            self.assertGreaterEqual(time.monotonic() - start, 0.25)


class Peers(unittest.TestCase):
    def test_a_directory_of_peers_goes_before_the_system(self):
        with tempfile.TemporaryDirectory() as there:
            for name in ("nginx", "lighttpd"):
                with open(f"{there}/{name}", "w") as f:
                    f.write("#!/bin/sh\necho $0 of today\n")
                os.chmod(f"{there}/{name}", 0o755)
            os.mkdir(there + "/lighttpd-modules")
            args = types.SimpleNamespace(peers=there, lighty="/l", floor="/f", profiled="")
            self.assertEqual(servers.binary(args, "nginx"), there + "/nginx")
            self.assertEqual(servers.path_of(args, "haproxy"), "haproxy")
            self.assertEqual(servers.path_of(args, "lighty"), "/l")
            self.assertEqual(servers.modules_of(there + "/lighttpd"), ["-m", there + "/lighttpd-modules"])
            self.assertEqual(servers.versions(args, ["nginx:aio"]), {"nginx": there + "/nginx of today"})
        self.assertEqual(servers.modules_of("/usr/sbin/lighttpd"), [])

    def test_a_second_binary_is_measured_beside_the_first(self):
        names = ["lighty", "nginx", "lighty:pool"]
        for profiled, expected in (("", names), ("/p", ["lighty", "lighty-profiled", *names[1:]])):
            args = types.SimpleNamespace(peers="", lighty="/l", floor="/f", profiled=profiled)
            self.assertEqual(servers.with_profiled(args, names), expected)
            self.assertEqual(servers.path_of(args, "lighty-profiled"), profiled)

    def test_a_round_is_void_if_the_client_was_the_limit(self):
        for server, client, is_void in ((0.5, 0.99, True), (0.97, 0.99, False), (0.5, 0.5, False)):
            cores = rig.Cores()
            cores.server, cores.client = server, client
            self.assertEqual(cores.is_void(), is_void)
        for before, after, share in (((5, 5), (6, 8), 0.25), ((5, 5), (6, 4), 1), ((5, 5), (5, 5), 0)):
            self.assertEqual(rig.busy_share(before, after), share)
        with rig.Cores() as cores:
            time.sleep(0.1)
        self.assertTrue(0 <= cores.server <= 1 and 0 <= cores.client <= 1)

    def test_uploads_are_read_to_their_end(self):
        with proxied_uploads.sink() as port, socket.create_connection(("127.0.0.1", port)) as s:
            for size in (0, 5, 3_000_000):
                head = f"POST /u HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"
                s.sendall(head.encode() + b"x" * size)
                self.assertEqual(client.read_message(s), 200)


class Experiments(unittest.TestCase):
    def test_each_is_called_by_its_names_and_has_a_script(self):
        for word in ("F5", "f5", "8", "balance"):
            self.assertEqual([one.name for one in experiments.chosen([word])], ["balance"])
        self.assertEqual({one.name for one in experiments.chosen(["F11"])}, {"hot", "table", "hotset"})
        with self.assertRaises(rig.RigError):
            experiments.chosen(["F99"])
        for one in experiments.ALL:
            self.assertTrue(os.access(one.script, os.X_OK), one.script)
            self.assertTrue(one.shows.endswith(".") and one.disproved, one.name)

    def test_every_figure_of_the_report_is_an_experiments(self):
        figures = {title.partition(".")[0]: name for title, name, _ in report.FIGURES}
        self.assertEqual(figures, {f: one.name for one in experiments.ALL for f in one.figures})
        rows = {name for name, *_ in report.ANCESTORS}
        self.assertTrue({f for one in experiments.ALL for f in one.ancestor} <= rows)
        self.assertIn("| F5 |", "\n".join(report.ancestors()))

    def test_what_was_made_is_not_made_again_with_the_same_binary(self):
        with tempfile.TemporaryDirectory() as out:
            def state(binary, words=(), again=False, diskbed=None):
                with open(out + "/lighty", "w") as f:
                    f.write(binary)
                return run.State(types.SimpleNamespace(
                    out=out, lighty=out + "/lighty", experiments=words, again=again, diskbed=diskbed))
            hot, cold = experiments.of("hot"), experiments.of("cold")
            first = state("a")
            self.assertIsNone(first.why_not(hot))
            self.assertIn("diskbed", first.why_not(cold))
            self.assertIsNone(state("a", diskbed="/x").why_not(cold))
            first.note(hot)
            self.assertIn("made at", state("a").why_not(hot))
            for other in (state("a", ["hot"]), state("a", again=True), state("b")):
                self.assertIsNone(other.why_not(hot))


class Report(unittest.TestCase):
    def test_figures_beside_peers_are_judged(self):
        one = {"us_per_request": 10.0, "rps": 5.0, "p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": 3.0,
               "memory_mb": 4.0, "bad": 0}
        rows = {"lighty": [one], "lighty:x": [{**one, "us_per_request": 1.0}],
                "nginx": [{**one, "us_per_request": 8.0}], "h2o": []}
        text = "\n".join(report.beside_peers({"1": {"44 B": rows, "10 MB": rows}}, ""))
        self.assertIn("| CPU over the best, 44 B, 1 worker | <= 1 | 1.25 | **missed** |", text)
        self.assertIn("| CPU over the best, 10 MB, 1 worker | <= 1.05 | 1.25 | **missed** |", text)

    def test_scripts_are_told_with_their_memory(self):
        row = {"rps": [10.0], "us": [1.0], "bad": 0}
        text = "\n".join(report.scripted(
            {"1": {"php-close": row, "magnet": {**row, "rps": [60.0]}},
             "memory": {"script": 2048.0, "request": 4096.0},
             "runaway": {"idle": [1.0], "beside": [3.0]}}, ""))
        self.assertIn("| <= 2 | 3.00 | **missed** |", text)
        self.assertIn("| >= 5.04 | 6.00 | met |", text)
        self.assertIn("A compiled script holds 2.0 KiB", text)

    def test_scripts_beside_lighttpd_are_told_by_steps(self):
        row = {"us": [6.0], "rps": [1.0], "bad": 0}
        text = "\n".join(report.beside_lighttpd(
            {"cpu": {"1": {"lighty:full": {**row, "us": [3.0]}, "lighttpd:full": row}},
             "calls": {"lighty:full": {"sendto": 1.0}}, "instructions": {"lighty:full": 9999.6},
             "reloads": {"count": 600, "settled": 100, "before_kib": 100, "after_kib": 1100}}, ""))
        self.assertIn("| CPU over lighttpd's, 1 connection | <= 0.95 | 0.50 | met |", text)
        self.assertIn("| bytes that each of 500 reloads left | <= 2048 | 2048.00 | met |", text)
        self.assertIn("| 0.50 | 10000 | sendto 1 | 0 |", text)

    def test_curves_are_judged_by_their_defaults(self):
        row = {"mb_s": 10.0, "fetches_s": 10.0, "blocked_pct": 0.0, "errors": 0}
        rows = {"lighty:linux-sendfile+inline": row, "lighty": {**row, "mb_s": 5.0},
                "lighty:chunk512": {**row, "mb_s": 19.0}, "lighty:chunk1024": {**row, "mb_s": 20.0}}
        text = "\n".join(report.large_cold_files(
            {"speed": 4, "chunks": rows, "clients": {"2": rows}}, ""))
        self.assertIn("| default chunk over the best | >= 0.9 | 0.95 | met |", text)
        self.assertIn("| one file, clients: 2, over linux-sendfile | >= 1 | 0.50 | **missed** |", text)
        curve = {"2": {**row, "fetch_p99_ms": 512.4, "errors": 3}, "64": {**row, "fetches_s": 8.0}}
        text = "\n".join(report.starved({"two spindles": {"pool": curve}}, ""))
        self.assertIn("| >= 0.9 | 0.80 | **missed** |", text)
        self.assertIn("| two spindles | pool | 512 / 3 | - |", text)

    def test_limits_are_judged_and_what_is_missing_is_said(self):
        rows = report.required([report.at_most("a", 0.6, 0.6), report.at_most("b", 0.61, 0.6),
                                report.at_least("c", None, 1)])
        self.assertIn("| met |", rows[2])
        self.assertIn("**missed**", rows[3])
        self.assertIn("| - |  |", rows[4])

    def test_every_figure_can_be_written_without_lighty(self):
        us = {"us": [1.0, 2.0], "rps": [3.0], "bad": 0}
        with tempfile.TemporaryDirectory() as out:
            lines = report.small_files({"44 B": {"nginx": us}}, out)
            self.assertTrue(os.path.exists(out + "/hot-44b.svg"))
        self.assertNotIn("nan", "\n".join(lines))

    def test_other_numbers_of_connections_stand_in_a_table(self):
        def row(us):
            return {"us": [us], "rps": [3.0], "bad": 0}
        rows = {"lighty": row(8.0), "nginx": row(10.0)}
        self.assertEqual(hot.numbers("8,1000"), [8, 1000])
        self.assertEqual((hot.numbers(""), report.by_connections({})), ([], []))
        with tempfile.TemporaryDirectory() as out:
            text = "\n".join(report.small_files({"44 B": rows, "44 B, 8 connections": rows}, out))
        self.assertIn("| 8 | nginx | 10.00 (10.00-10.00) | 0.80 | 3 | 0 |", text)

    def test_only_the_named_peers_are_judged(self):
        def row(us):
            return [{"us_per_request": us, "rps": 10.0, "bad": 0, "void": False}]
        rows = {"lighty": row(9.0), "nginx": row(10.0), "h2o": row(1.0)}
        text = "\n".join(report.in_rounds(0.9, "per megabyte", ("nginx",))({"1 MB": rows}, ""))
        self.assertIn("| 1 MB: CPU over the best peer's | <= 0.9 | 0.90 | met |", text)

    def test_void_rounds_do_not_count(self):
        def row(us, void=False):
            return {"us_per_request": us, "rps": 10.0, "bad": 0, "void": void}
        rows = {"lighty": [row(8.0), row(80.0, True)], "nginx": [row(10.0), row(10.0)],
                "h2o": [row(5.0, True)]}
        text = "\n".join(report.in_rounds(0.8, "per connection")({"clear": rows}, ""))
        self.assertIn("| clear: CPU over the best peer's | <= 0.8 | 0.80 | met |", text)
        self.assertIn("| clear | lighty | 8.00 (8.00-8.00) | 10 | 0 | 1 |", text)
        self.assertIn("| clear | h2o | void |  |  | 1 |", text)

    def test_both_clients_are_judged(self):
        def row(us, asked):
            return {"us": [us], "rps": [3.0], "bad": 0,
                    "asked": {"us": [asked], "rps": [4.0], "bad": 0}}
        rows = {"lighty": row(6.5, 5.5), "nginx": row(10.0, 10.0), "floor": row(6.0, 5.0)}
        with tempfile.TemporaryDirectory() as out:
            text = "\n".join(report.small_files({"44 B": rows}, out))
        self.assertIn("| CPU over nginx's | <= 0.6 | 0.55 | met |", text)
        self.assertIn("| CPU over nginx's, asked by wrk | <= 0.6 | 0.65 | **missed** |", text)
        self.assertIn("The floor itself is at 0.50 of nginx, and at 0.60 when wrk asks", text)

    def test_what_was_measured_before_is_kept(self):
        with tempfile.TemporaryDirectory() as out:
            with open(out + "/experiments.md", "w") as f:
                f.write("# Experiments\n\n## 1. A\n\nold\n\n| a |\n\n## 2. B\n\n### c\n\nx\n")
            self.assertEqual(report.sections(out + "/experiments.md"),
                             {"1. A": "old\n\n| a |\n", "2. B": "### c\n\nx\n"})
            self.assertEqual(report.sections(out + "/none"), {})

    def test_proxies_are_judged(self):
        us = {"us": [10.0], "rps": [3.0], "bad": 0, "calls": {"recvfrom": 2, "sendto": 2}}
        rows = {"lighty": us, "nginx": {**us, "us": [20.0]}, "haproxy": {**us, "us": [12.5]},
                "floor": {**us, "us": [4.0]}}
        with tempfile.TemporaryDirectory() as out:
            lines = report.proxied({"servers": rows}, out)
        self.assertIn("| <= 0.9 | 0.80 | met |", lines[2])
        self.assertIn("1.25 times", "\n".join(lines))
        row = {"rps": [1350.0], "to_fast": 227, "to_slow": 100, "bad": 0, "p99_ms": [9]}
        results = {"alone": [[1000.0], [440.0]],
                   "servers": {"lighty:sqf": row, "lighty:round-robin": {**row, "rps": [880.0]}}}
        text = "\n".join(report.balanced(results, ""))
        self.assertIn("| 1.53 | met |", text)
        self.assertIn("| 0.94 | **missed** |", text)
        self.assertAlmostEqual(balance.speeds(results)[1], 2.2727, 3)

    def test_a_lost_request_shows(self):
        one = {"requests": 10, "lost": 1, "before_p99_ms": 5, "after_p99_ms": 60, "max_ms": 70,
               "down_ms": 0}
        text = "\n".join(report.failed_over({"killed": {"lighty": [one, one]}}, ""))
        self.assertIn("| requests lost, killed | <= 0 | 2.00 | **missed** |", text)
        self.assertIn("| added p99, killed, ms | <= 50 | 55.00 | **missed** |", text)

    def test_rules_and_filters_are_judged(self):
        def case(lighty, nginx):
            return {"cpu": {"lighty": {"none": {"us": [lighty], "bad": 0}},
                            "nginx": {"none": {"us": [nginx], "bad": 0}}},
                    "rss_kib": {"lighty": 2048, "nginx": 1024},
                    "test_s": {"lighty": 0.5, "nginx": 0.1}}
        results = {"no rules": case(5.0, 6.0), "10,000 rewrites": case(9.0, 8.0)}
        text = "\n".join(report.ruled(results, ""))
        self.assertIn("| no rules, none matches: CPU over nginx's | <= 1 | 0.83 | met |", text)
        self.assertIn("CPU over nginx's | <= 1 | 1.12 | **missed** |", text)
        self.assertIn("| 10,000 rewrites: memory over nginx's | <= 1 | 2.00 | **missed** |", text)
        self.assertIn("| +4.00 |", text)
        row = {size: {"mb_per_cpu_s": [2.0], "encoded": 10} for size in ("100 KB", "10 MB")}
        near = {"idle_ms": [1.0], "loaded_ms": [1.5], "mb_s": [9.0]}
        results = {"speed": {"br": {"lighty": row, "h2o": row}},
                   "neighbour": {"br": {"lighty": near}},
                   "idle": {"44 B": {"lighty": [1.0], "lighty:deflate": [1.1]}},
                   "instructions": {"44 B": {"lighty:pool": 100, "lighty:pool+deflate": 101}}}
        text = "\n".join(report.compressed(results, ""))
        self.assertIn("left out | 100 | 101 |", text)
        self.assertEqual((text.count("| met |"), text.count("**missed**")), (5, 1))

    def test_a_drill_that_failed_shows(self):
        lines = report.drilled({"eio": {"nginx": {"ok": False, "text": "hangs"}}}, "")
        self.assertIn("**fails:** hangs", "\n".join(lines))
        self.assertEqual(set(drills.DRILLS) - set(drills.__doc__.split()), set())

    def test_the_share_of_recording_is_judged(self):
        row = {"samples": 100, "stamps and series": 1.9, "clock": 0.2, "connections": 0.5}
        alike = {"p99_ms": 1.0}
        text = "\n".join(report.metered(
            {"cost": {"on": [1.0], "off": [1.0]}, "share": {"44 B": row},
             "scrape": {"alone": alike, "beside": alike},
             "series": {"before": 1, "after": 1, "hosts": 9}}, ""))
        self.assertIn("| recording, 44 B: per cent of the CPU | <= 2 | 2.10 | **missed** |", text)
        self.assertIn("clock 0.20 %, connections 0.50 % of 100.", text)

    def test_tls_is_judged_beside_the_best_peer(self):
        rows = {"lighty": [9.0, 10.0, 11.0], "nginx": [20.0] * 3, "h2o": [10.5] * 3}
        text = "\n".join(report.over_tls({"us": {"100 KB, HTTP/1.1": rows},
                                          "handshake": {"full": rows},
                                          "idle_kib": {"HTTP/1.1": {"lighty": 3.5, "h2o": 9}}}, ""))
        self.assertEqual((text.count("| met |"), text.count("**missed**")), (1, 3))
        self.assertIn("| 100 KB, HTTP/1.1: CPU over the best peer's | <= 0.9 | 0.95 | **missed**", text)

    def test_uploads_are_judged_by_the_version_beside_them(self):
        seconds = {"lighty": {"HTTP/1.1": [8.0], "HTTP/2": [10.0]},
                   "nginx": {"HTTP/1.1": [8.0], "HTTP/2": [8.0]}}
        results = {"seconds": seconds, "rtt_ms": 50.0, "mbit": 100.0, "bytes": 100_000_000}
        text = "\n".join(report.uploaded(results, ""))
        self.assertIn("| rate by HTTP/2 over that by HTTP/1.1 | >= 0.9 | 0.80 | **missed** |", text)
        self.assertIn("100 MB, 50 ms there and back, 100 Mbit/s.", text)

    def test_every_attack_is_explained(self):
        explained = set(floods.__doc__.replace(",", " ").split())
        self.assertEqual(set(floods.FLOODS) - explained, set())
        self.assertLessEqual(floods.PROXIED, set(floods.FLOODS))


class Operations(unittest.TestCase):
    def arguments(self, out):
        return operated.arguments("", "nginx").parse_args(["--out", out])

    def test_a_load_counts_what_its_connections_see(self):
        with tempfile.TemporaryDirectory() as out:
            args = self.arguments(out)
            with operated.backends(args) as ports:
                with operated.Clients(args, ports["backend"][0], kept=4, rate=80, uploads=1,
                                      tunnels=3, events=2, echoes=50) as clients:
                    clients.phase("one")
                    time.sleep(2)
                    clients.check()
                    figures = clients.end()
        counts = figures["counts"]["one"]
        self.assertEqual((figures["tunnels_alive"], figures["streams_alive"]), (3, 2))
        self.assertGreater(min(counts["responses"], counts["events"]), 0)
        self.assertEqual([counts[kind] for kind in ("lost", "reset", "closed", "wrong", "uploads_cut",
                                                    "tunnels_ended", "events_missed")], [0] * 7)
        self.assertGreater(figures["echo"]["one"]["samples"], 0)

    def test_ends_of_connections_are_told_apart(self):
        fates = {0: (b"", "lost"), 1: (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx", "lost"),
                 2: (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "closed"),
                 3: (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
                     "announced")}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            load = steady.Load(listener.getsockname()[1], kept=1, rate=1000)
            conn = steady.Kept(load, 0)
            conn.open()
            for sent, kind in fates.values():
                peer = listener.accept()[0]
                conn.queue.append(time.monotonic())
                conn.ask()
                peer.recv(1000)
                peer.sendall(sent)
                if kind == "closed":
                    while conn.due is not None:
                        conn.readable()
                peer.close()
                before, end = load.counts.get("start", {}).get(kind, 0), time.monotonic() + 10
                while load.counts.get("start", {}).get(kind, 0) == before:
                    self.assertLess(time.monotonic(), end, kind)
                    conn.readable()
            conn.close()
        counts = load.counts["start"]
        self.assertEqual({kind: counts[kind] for kind in ("lost", "closed", "announced", "responses")},
                         {"lost": 2, "closed": 1, "announced": 1, "responses": 2})

    def test_every_third_generation_has_more(self):
        with tempfile.TemporaryDirectory() as out:
            for name in ("lighty:sandbox", "nginx", "lighttpd", "haproxy", "caddy"):
                server = operated.Operated(self.arguments(out), name,
                                           {"backend": [7001, 7002], "files": 7003})
                for server.generation in range(4):
                    server.write()
                    with open(server.path) as f:
                        text = f.read()
                    has_more = server.generation == 1
                    self.assertEqual([str(server.extra) in text, "7002" in text], [has_more] * 2, name)
                    self.assertIn("7001", text)
                server.write("mark\n")
                with open(server.path) as f:
                    self.assertIn("mark", f.read())
            self.assertIn('server.sandbox = "auto"', operated.Operated(
                self.arguments(out), "lighty:sandbox", {"backend": [1, 2]})._lighty(False))

    def test_every_refusal_is_explained_and_every_site_is_written(self):
        obstacles = types.SimpleNamespace(port=1, ports=[2, 3], directory="/d", full="/f", secret="/s")
        for kind in refusals.KINDS:
            self.assertIn(f"    {kind} ", refusals.__doc__)
            self.assertTrue(refusals.of_lighty(kind, obstacles), kind)
        with tempfile.TemporaryDirectory() as out:
            args = self.arguments(out)
            args.sites = 3
            server = operated.Operated(args, "nginx", {"backend": [1, 2]})
            self.assertIn("sites/*.conf;", reload.sites(args, server))
            with open(server.directory + "/sites/2.conf") as f:
                self.assertIn("server_name site2.example;", f.read())

    def test_operation_is_judged(self):
        usage = {"processes": 1, "threads": 3, "fds": 9, "sockets": 5, "anon_kib": 1000, "pss_kib": 1}
        more = {**usage, "fds": 10}
        counts = {"reloads": {**dict.fromkeys(steady.KINDS, 0), "closed": 1}}
        r = {"reloads": 10, "ended": 0, "counts": counts, "early_kib": 1, "late_kib": 2, "tenth": usage,
             "last": more, "wall_s": 0.1, "wall_max_s": 0.2, "latency": {"reloads": {"p99_ms": 1.0}}}
        text = "\n".join(operations_report.under_load({"lighty": r, "nginx": r}, ""))
        self.assertEqual(text.count("**missed**"), 2)
        row = {"times": 3, "went_on": 3, "alive": True, "status": 1, "paused_s": 0.0, "before": usage,
               "after": more}
        text = "\n".join(operations_report.refused(
            {"lighty": {"port": row, "key": {**row, "after": usage}},
             "lighttpd": {"port": {**row, "alive": False, "status": None}}}, ""))
        self.assertEqual((text.count("**missed**"), text.count("| met |")), (1, 1))
        self.assertIn("| lighttpd | port | **ends** |", text)


class Frames(unittest.TestCase):
    def test_a_frame_has_its_length_kind_flags_and_stream(self):
        self.assertEqual(http2.frame(http2.PING, http2.ACK, 0, b"12345678"),
                         b"\0\0\x08\x06\x01\0\0\0\0" + b"12345678")
        self.assertEqual(http2.settings(window=1), b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\x01")

    def test_an_integer_of_hpack_is_that_of_its_rfc(self):
        self.assertEqual(floods.integer(1337, 5), bytes([31, 154, 10]))
        self.assertEqual(floods.integer(10, 5), bytes([10]))

    def test_a_connection_notes_what_the_server_announces_and_how_it_leaves(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            with http2.Connection(listener.getsockname()[1]) as c:
                peer = listener.accept()[0]
                announced = (3).to_bytes(2, "big") + (7).to_bytes(4, "big")
                peer.sendall(http2.frame(http2.SETTINGS, payload=announced)
                             + http2.frame(http2.GOAWAY, payload=bytes(7) + b"\x0b")[:12])
                c.begin()
                self.assertEqual((c.max_streams, c.goaway), (7, None))
                peer.sendall(bytes(4) + b"\x0b")
                c.frames(5)
                self.assertEqual((c.goaway, c.has_ended()), (11, False))
                peer.close()
                while not c.is_over:
                    c.frames(5)


if __name__ == "__main__":
    unittest.main()
