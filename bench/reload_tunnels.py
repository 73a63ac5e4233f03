#!/usr/bin/env python3
"""WebSockets and event streams through reloads: alive afterwards, echo meanwhile, memory held.

500 tunnels and 100 event streams are open; the server is reloaded 100 times, and five tunnels more are
opened behind each reload, so that there are tunnels of every generation.  200 messages a second are
echoed, each by the next tunnel.  Each third generation has another listener and another backend.
Before, the same tunnels and streams are opened without a reload, for their memory.

    alive       tunnels and streams that answer after the last reload       lighty: all
    echo        longest time from when a message was due to its echo        lighty: at most 50 ms
    held        private memory more than without reloads, per tunnel and stream, and old processes
                                                                            lighty: at most 4 KB
"""
import sys
import time

import operated
import rig
import servers

GAP_S = 0.2
SETTLE_S = 5
DELAY = "\t\t\tstream_close_delay 1h\n"


def main():
    ap = operated.arguments(__doc__, "lighty,lighty:sandbox,nginx,haproxy,caddy,caddy:delay")
    ap.add_argument("--reloads", type=int, default=100)
    ap.add_argument("--tunnels", type=int, default=1000)
    ap.add_argument("--streams", type=int, default=100)
    args = ap.parse_args()
    names = operated.installed(args)
    results = {}
    with operated.backends(args) as ports:
        for name in names:
            try:
                results[name] = measured(args, operated.Operated(args, name, ports))
            except rig.RigError as e:
                rig.say(f"{name} is given up: {e}")
                continue
            show(args, name, results[name])
    rig.save(args, "reload_tunnels",
             {"tunnels": args.tunnels, "streams": args.streams, "reloads": args.reloads,
              "servers": results}, servers.versions(args, names))


def measured(args, server):
    if server.variant == "delay":
        server.more = DELAY         # Caddy 2.7 and newer
    before, _, _ = run(args, server, is_reloaded=False)
    after, walls, figures = run(args, server, is_reloaded=True)
    return {"before": before, "after": after, "wall_s": rig.median(walls), **figures}


def run(args, server, is_reloaded):
    """The usage at the end, seconds of each reload, and what the clients saw."""
    server.generation, walls = server.first, []
    server.start()
    first = args.tunnels // 2
    try:
        with operated.Clients(args, server.port, tunnels=first, events=args.streams) as clients:
            clients.phase("quiet")
            time.sleep(SETTLE_S)
            clients.phase("reloads" if is_reloaded else "quiet")
            left = args.tunnels - first
            for turn in range(args.reloads):
                if is_reloaded:
                    walls.append(server.reload())
                more = left // (args.reloads - turn)
                clients.say(f"tunnels {more}")
                left -= more
                time.sleep(GAP_S if is_reloaded else GAP_S / 10)
            clients.phase("after")
            time.sleep(SETTLE_S)
            usage = server.usage()
            clients.check()
            return usage, walls, clients.end()
    finally:
        server.stop()


def show(args, name, r):
    of = args.tunnels + args.streams
    quiet, busy = r["echo"].get("quiet", {}), r["echo"].get("reloads", {})
    counts = r["counts"].get("reloads", {})
    rig.say(
        f"{name}: alive {r['tunnels_alive']} tunnels of {args.tunnels}, {r['streams_alive']} streams of"
        f" {args.streams}; events missed {counts.get('events_missed', 0)}\n"
        f"   echo p50 / p99 / longest ms: {text(busy)}; before the reloads {text(quiet)}\n"
        f"   private {r['before']['anon_kib']} to {r['after']['anon_kib']} KiB:"
        f" {(r['after']['anon_kib'] - r['before']['anon_kib']) / of:.1f} KiB for each; processes"
        f" {r['before']['processes']} to {r['after']['processes']}, threads"
        f" {r['before']['threads']} to {r['after']['threads']}, descriptors {r['before']['fds']} to"
        f" {r['after']['fds']}; a reload {r['wall_s'] * 1e3:.0f} ms")


def text(echo):
    return " / ".join(f"{echo.get(field, 0):.1f}" for field in ("p50_ms", "p99_ms", "max_ms"))


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"reload_tunnels: {e}")
