#!/usr/bin/env python3
"""Figure 15: what attacks by HTTP/2 cost a server, and its innocent clients.

One function is one attack, in clear text by prior knowledge; each starts the server afresh.  An
innocent client asks for a small file 20 times a second meanwhile.  What is required of lighty:

    rapid-reset     requests that are reset at once: cut                       <= 120 pairs
    rapid-backend   the same before a backend that never answers: requests at the backend at a
                    time                                                       <= those announced
    made-you-reset  frames that make the server reset its own streams: cut     <= 25 pairs
    continuation    a head without an end: cut                                 <= 64 KiB
    hpack-bomb      an entry of 4 KB, and requests of 4,000 references to it   } <= 10 MB more
    field-bomb      heads of thousands of tiny fields, whose answers nobody takes  } memory
    ping, settings, priority, window-update, empty-data
                    floods of frames whose replies nobody reads: cut           <= 2,000 frames
    zero-window     2,000 streams of 1 MB that nobody takes                    <= 5 MB more memory
    dribble         100 streams whose windows grow by a byte at a time         <= 20 % CPU
    held-fields     2,000 requests of 15 KB of fields out of 30 bytes each, and crumbs of a cookie,
                    whose windows grow by a byte at a time                     <= 20 MB more memory
    held-backend    the same before a backend that never answers               <= 20 MB more memory
    tiny-data       100,000 DATA frames of a byte                              <= 2 MB more memory

In all of them the innocent's p99 is at most 20 ms, or twice what it was without.
"""
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time

import client
import http2
import rig
import servers
from drills import Outcome
from http2 import frame

P99_MS_MAX, FRAMES_MAX, RESETS_MAX, OWN_RESETS_MAX = 20, 2_000, 120, 25
BLOCK_BYTES_MAX, BOMB_KIB_MAX, WINDOW_KIB_MAX, TINY_KIB_MAX = 64 << 10, 10 << 10, 5 << 10, 2 << 10
DRIBBLE_SHARE_MAX = 0.2
HELD_KIB_MAX = 20 << 10
PAIRS, FLOOD_FRAMES, BATCH = 20_000, 100_000, 100
MIB = 1 << 20


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o,haproxy")
    ap.add_argument("--floods", default=",".join(FLOODS), metavar="A,B,...")
    args = ap.parse_args()
    rig.raise_descriptors()
    root = make_root(args.out)
    with files_for_proxies(args, root) as files:
        results, wanted = run_all(args, root, files)
    rig.save(args, "floods", results, servers.versions(args, wanted))


def run_all(args, root, files):
    results, wanted = {}, set()
    for flood in args.floods.split(","):
        with slow_backend() as slow:
            for name in args.servers.split(","):
                tuning = servers.Tuning(http2=True)
                if flood in PROXIED:
                    tuning.backends = (slow.port,)
                elif name.startswith("haproxy"):
                    tuning.backends = (files,)
                for name, make in servers.chosen(only(args, name), tuning, root):
                    wanted.add(name)
                    slow.most = 0
                    outcome = run(flood, name, make, args, slow)
                    results.setdefault(flood, {})[name] = {
                        "ok": outcome.ok, "text": outcome.text, **outcome.figures}
                    rig.say(f"{flood:14s} {name:9s} {'pass' if outcome.ok else 'FAIL'}"
                            f"  {outcome.text}")
    return results, wanted


def only(args, name):
    """The arguments, for one server."""
    one = type(args)(**vars(args))
    one.servers = name
    return one


def make_root(out):
    root = out + "/floods"
    os.makedirs(root, exist_ok=True)
    rig.write_once(root + "/index.html", rig.SMALL)
    rig.write_once(root + "/1m.bin", rig.pattern("1m.bin", MIB))
    return root


@contextlib.contextmanager
def files_for_proxies(args, root):
    """The port of a server of the files, for servers that are proxies only."""
    if "haproxy" not in args.servers:
        yield None
        return
    (name, make), = servers.chosen(only(args, "nginx"), servers.Tuning(), root)
    with servers.serving(args, name, make, core=None) as server:
        yield server.port


def run(flood, name, make, args, slow):
    try:
        with servers.serving(args, name, make, core=None) as server:
            return run_started(FLOODS[flood], server, slow if flood in PROXIED else None)
    except rig.RigError as e:
        return Outcome(False, f"does not start: {e}")


def run_started(attack, server, slow):
    if not slow and http2.fetch(server.port) != len(rig.SMALL):
        return Outcome(False, "does not serve HTTP/2 before the attack")
    calm = None if slow else innocents(server, 1, lambda: None)[1]
    kib = rig.memory_kib(server.pid, "RssAnon")
    try:
        if slow:
            outcome, during = attack(server, slow), None
        else:
            outcome, during = innocents(server, 3, lambda: attack(server, kib))
    except (OSError, rig.RigError) as e:
        return Outcome(False, f"the attack failed: {e}")
    if not server.alive():
        return Outcome(False, outcome.text + "; the server has DIED", **outcome.figures)
    if during is None:
        return outcome
    limit_ms = max(P99_MS_MAX, 2 * calm["p99_ms"])
    fine = during["p99_ms"] <= limit_ms and not during["failed"]
    serves = http2.fetch(server.port) == len(rig.SMALL)
    text = f"{outcome.text}; innocent's p99 {during['p99_ms']:.1f} ms ({calm['p99_ms']:.1f} calm)"
    if during["failed"]:
        text += f", {during['failed']} of {during['samples']} FAILED"
    return Outcome(outcome.ok and fine and serves, text + ("" if serves else ", does NOT serve after"),
                   p99_ms=during["p99_ms"], failed=during["failed"], **outcome.figures)


def innocents(server, seconds, attack):
    """What the attack came to, and the latencies of an innocent client beside it."""
    argv = [sys.executable, http2.__file__, str(server.port), "/index.html", "20", str(seconds)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        outcome = attack()
    finally:
        said = process.communicate()[0]
    return outcome, json.loads(said)


def cost(server, kib, cpu_s):
    """Figures of an attack that began with so much memory and processor time."""
    return {"grown_kib": rig.memory_kib(server.pid, "RssAnon") - kib,
            "cpu_s": rig.cpu_s(server.pid) - cpu_s}


# ---------------------------------------------------------------- resets

def pairs_until_cut(c, pair, batch):
    """How many pairs of frames are sent before the server ends the connection, or None."""
    for sent in range(0, PAIRS, batch):
        frames = b"".join(pair(1 + 2 * i) for i in range(sent, sent + batch))
        if not c.send(frames):
            return sent + batch
        c.frames(0.002)
        if c.is_over or c.goaway not in (None, 0):
            return sent + batch
    return None


def resets(server, kib, pair, most, batch):
    cpu_s = rig.cpu_s(server.pid)
    with http2.Connection(server.port).begin() as c:
        cut = pairs_until_cut(c, pair, batch)
        figures = cost(server, kib, cpu_s)
    text = f"cut after {cut} pairs" if cut else f"never cut in {PAIRS} pairs"
    return Outcome(cut and cut <= most, f"{text}, {figures['cpu_s'] * 1e3:.0f} ms CPU",
                   cut=cut, **figures)


def reset_at_once(stream):
    return http2.get(stream, "/1m.bin") + frame(http2.RST_STREAM, stream=stream,
                                                payload=(8).to_bytes(4, "big"))


def make_it_reset(stream):
    """A window that grows by nothing is an error of the stream (RFC 9113 section 6.9)."""
    return http2.get(stream, "/1m.bin") + http2.window_update(stream, 0)


def rapid_reset(server, kib):
    return resets(server, kib, reset_at_once, RESETS_MAX, 10)


def made_you_reset(server, kib):
    return resets(server, kib, make_it_reset, OWN_RESETS_MAX, 5)


def rapid_backend(server, slow):
    """Requests that are at the backend at a time, beside those that the server says it takes."""
    announced = 0
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionError, TimeoutError), \
                http2.Connection(server.port).begin() as c:
            announced = max(announced, c.max_streams or 0)
            # One connection at a time: the limit is each connection's.
            pairs_until_cut(c, reset_at_once, 50)
            break
    text = f"{slow.most} requests at the backend at a time, {announced} announced"
    return Outcome(slow.most <= announced, text, at_backend=slow.most, announced=announced)


class SlowBackend:
    """Takes connections and never answers; knows how many there were at a time."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.most, self.open, self.is_over = 0, 0, False

    def serve(self):
        with selectors.DefaultSelector() as selector, self.listener:
            selector.register(self.listener, selectors.EVENT_READ)
            while not self.is_over:
                for key, _ in selector.select(0.1):
                    self.turn(selector, key.fileobj)

    def turn(self, selector, s):
        if s is self.listener:
            selector.register(s.accept()[0], selectors.EVENT_READ)
            self.open += 1
            self.most = max(self.most, self.open)
        elif not client.receive(s):
            selector.unregister(s)
            s.close()
            self.open -= 1


@contextlib.contextmanager
def slow_backend():
    backend = SlowBackend()
    thread = threading.Thread(target=backend.serve)
    thread.start()
    try:
        yield backend
    finally:
        backend.is_over = True
        thread.join()


# ---------------------------------------------------------------- heads

def continuation(server, kib):
    cpu_s, sent = rig.cpu_s(server.pid), 0
    piece = b"\x00" + http2.string(b"x-field") + http2.string(b"v" * 100)
    with http2.Connection(server.port).begin() as c:
        c.send(frame(http2.HEADERS, http2.END_STREAM, 1, http2.request()))
        while sent < 8 * MIB:
            c.send(frame(http2.CONTINUATION, 0, 1, piece * 9))
            sent += 9 * len(piece)
            c.frames(0.001)
            if c.is_over or c.goaway is not None:
                break
        cut = c.is_over or c.goaway is not None
        figures = cost(server, kib, cpu_s)
    text = f"cut after {sent / 1024:.0f} KiB" if cut else f"never cut in {sent / 1024:.0f} KiB"
    return Outcome(cut and sent <= BLOCK_BYTES_MAX, text, sent=sent, **figures)


def integer(value, bits, first=0):
    """An integer of HPACK (RFC 7541 section 5.1)."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes([first | value])
    out, value = [first | limit], value - limit
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def hpack_bomb(server, kib):
    """Each request decodes to 16 MB out of 4 KB."""
    entry = b"\x40" + http2.string(b"x-bomb") + integer(3900, 7) + b"b" * 3900
    first = http2.request() + entry
    rest = http2.request() + b"\xbe" * 4000
    return bomb(server, kib, [first] + [rest] * 99)


def field_bomb(server, kib):
    """Cookies of nothing, and fields of one byte each: what is kept for each is the cost."""
    entry = b"\x60" + http2.string(b"a")    # cookie: a, which goes into the table
    return bomb(server, kib, [http2.request("/1m.bin") + entry]
                + [http2.request("/1m.bin") + b"\xbe" * 14_000] * 99)


def bomb(server, kib, blocks):
    cpu_s, most = rig.cpu_s(server.pid), 0
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(http2.Connection(server.port, window=0).begin())
                       for _ in range(3)]
        for i, block in enumerate(blocks):
            for c in connections:
                if not c.is_over and c.goaway is None:
                    c.send(frame(http2.HEADERS, http2.END_STREAM | http2.END_HEADERS, 1 + 2 * i,
                                 block))
                    c.frames(0.002)
            most = max(most, cost(server, kib, cpu_s)["grown_kib"])
        time.sleep(0.3)
        figures = cost(server, kib, cpu_s)
    figures["grown_kib"] = max(most, figures["grown_kib"])
    text = f"{figures['grown_kib'] / 1024:.1f} MB more, {figures['cpu_s'] * 1e3:.0f} ms CPU"
    return Outcome(figures["grown_kib"] <= BOMB_KIB_MAX, text, **figures)


# ---------------------------------------------------------------- frames that do nothing

def flood(server, kib, one, before=b""):
    """So many frames, and nobody reads the replies."""
    cpu_s, cut, sent = rig.cpu_s(server.pid), None, 0
    with http2.Connection(server.port, timeout_s=2).begin() as c:
        c.send(before)
        while sent < FLOOD_FRAMES and cut is None:
            took = c.send(one * BATCH)
            sent += BATCH
            time.sleep(0.001)   # What lies in the kernel's buffers has met no limit yet.
            if not took or c.has_ended():
                cut = sent
        if cut is None and ended_soon(c):
            cut = sent
        figures = cost(server, kib, cpu_s)
    text = f"cut within {cut} frames" if cut else f"{sent} frames taken"
    text += f", {figures['cpu_s'] * 1e3:.0f} ms CPU, {figures['grown_kib']} KiB more"
    return Outcome(cut and cut <= FRAMES_MAX + BATCH, text, cut=cut, **figures)


def ended_soon(c):
    """Does the server close within half a second?"""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        if c.has_ended():
            return True
        time.sleep(0.01)
    return False


def ping(server, kib):
    return flood(server, kib, frame(http2.PING, payload=bytes(8)))


def settings(server, kib):
    return flood(server, kib, http2.settings())


def priority(server, kib):
    return flood(server, kib, frame(http2.PRIORITY, stream=7, payload=b"\0\0\0\0\x10"))


def window_updates(server, kib):
    return flood(server, kib, http2.window_update(0, 1))


def empty_data(server, kib):
    return flood(server, kib, frame(http2.DATA, stream=1), http2.get(1, ends=False))


# ---------------------------------------------------------------- bodies

def zero_window(server, kib):
    cpu_s = rig.cpu_s(server.pid)
    with contextlib.ExitStack() as stack:
        streams = 0
        while streams < 2_000:
            c = stack.enter_context(http2.Connection(server.port, window=0).begin())
            count = min(100, c.max_streams or 100, 2_000 - streams)
            c.send(b"".join(http2.get(1 + 2 * i, "/1m.bin") for i in range(count)))
            c.frames(0.01)
            streams += count
        time.sleep(0.5)
        figures = cost(server, kib, cpu_s)
    return Outcome(figures["grown_kib"] <= WINDOW_KIB_MAX,
                   f"{figures['grown_kib'] / 1024:.1f} MB more", **figures)


def dribble(server, kib):
    with http2.Connection(server.port, window=1).begin() as c:
        c.send(b"".join(http2.get(1 + 2 * i, "/1m.bin") for i in range(50)))
        cpu_s, end, tiny = rig.cpu_s(server.pid), time.monotonic() + 2, 0
        more = b"".join(http2.window_update(1 + 2 * i, 1) for i in range(50))
        while time.monotonic() < end and c.send(more):
            tiny += sum(kind == http2.DATA and 0 < len(payload) < 1024
                        for kind, _, _, payload in c.frames(0.02))
        took_s = max(time.monotonic() - end + 2, 0.1)
        figures = cost(server, kib, cpu_s)
    share = figures["cpu_s"] / took_s
    text = f"{tiny} tiny frames in {took_s:.1f} s, {share:.0%} CPU"
    return Outcome(share <= DRIBBLE_SHARE_MAX, text, tiny=tiny, share=share, **figures)


def held_fields(server, kib, target="/1m.bin"):
    """Indexed fields and crumbs, no window, and credits of a byte."""
    entry = b"\x40" + http2.string(b"x-held") + integer(3000, 7) + b"v" * 3000
    more = b"\xbe" * 5 + (b"\x00" + http2.string(b"cookie") + http2.string(b"a=b")) * 8
    cpu_s = rig.cpu_s(server.pid)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(http2.Connection(server.port, window=0).begin())
                       for _ in range(20)]
        for c in connections:
            for i in range(100):
                c.send(frame(http2.HEADERS, http2.END_STREAM | http2.END_HEADERS, 1 + 2 * i,
                             http2.request(target) + (entry if i == 0 else b"") + more))
            c.frames(0.01)
        for _ in range(5):
            for c in connections:
                c.send(b"".join(http2.window_update(1 + 2 * i, 1) for i in range(100)))
                c.frames(0.01)
        time.sleep(0.5)
        figures = cost(server, kib, cpu_s)
    return Outcome(figures["grown_kib"] <= HELD_KIB_MAX,
                   f"{figures['grown_kib'] / 1024:.1f} MB more", **figures)


def held_backend(server, slow):
    return held_fields(server, rig.memory_kib(server.pid, "RssAnon"))


def tiny_data(server, kib):
    cpu_s, most = rig.cpu_s(server.pid), 0
    with http2.Connection(server.port).begin() as c:
        c.send(http2.get(1, ends=False))
        for _ in range(FLOOD_FRAMES // 500):
            if not c.send(frame(http2.DATA, stream=1, payload=b"x") * 500):
                break
            for kind, _, _, _ in c.frames(0):
                if kind == http2.RST_STREAM:
                    break
            most = max(most, cost(server, kib, cpu_s)["grown_kib"])
        figures = cost(server, kib, cpu_s)
    figures["grown_kib"] = max(most, figures["grown_kib"])
    text = f"{figures['grown_kib']} KiB more, {figures['cpu_s'] * 1e3:.0f} ms CPU"
    return Outcome(figures["grown_kib"] <= TINY_KIB_MAX, text, **figures)


PROXIED = {"rapid-backend", "held-backend"}
FLOODS = {"rapid-reset": rapid_reset, "rapid-backend": rapid_backend,
          "made-you-reset": made_you_reset, "continuation": continuation,
          "hpack-bomb": hpack_bomb, "field-bomb": field_bomb, "ping": ping, "settings": settings,
          "priority": priority, "window-update": window_updates, "empty-data": empty_data,
          "zero-window": zero_window, "dribble": dribble, "held-fields": held_fields,
          "held-backend": held_backend, "tiny-data": tiny_data}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"floods: {e}")
