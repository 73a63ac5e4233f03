#!/usr/bin/env python3
"""Reload after reload under load: connections lost, reset and closed, and what stays behind.

64 kept connections send 2,000 requests a second; 20 downloads and 20 uploads are under way.  Each
third generation has another listener and another backend; each tenth reload is refused, because the
configuration is broken.  lighty is reloaded 1,000 times, the others 200 times.

    lost, reset, closed     connections, as steady.py counts them           lighty: 0
    memory                  private, at least in reloads 5 to 15, and in the last ten; the load has
                            run for a minute before, because it takes memory by itself
                                                                            lighty: at most +2 MB
    fds, threads, processes some seconds after reload 10, and after the last one, without the load
                                                                            lighty: equal
"""
import sys
import time

import operated
import rig
import servers
import steady

GAP_S = 0.15                # between two reloads
WARM_S = 60
SETTLE_S = 3
IDLE_S = 35                 # idle connections to backends are kept for 30 seconds


def main():
    ap = operated.arguments(__doc__, "lighty,lighty:sandbox,nginx,lighttpd,haproxy,caddy")
    ap.add_argument("--reloads", type=int, default=1000, help="of lighty (%(default)s)")
    ap.add_argument("--peer-reloads", type=int, default=200, help="of the others (%(default)s)")
    ap.add_argument("--rate", type=int, default=2000, help="requests a second (%(default)s)")
    args = ap.parse_args()
    names = operated.installed(args)
    results = {}
    with operated.backends(args) as ports:
        for name in names:
            count = args.reloads if name.startswith("lighty") else args.peer_reloads
            try:
                results[name] = measured(args, operated.Operated(args, name, ports), count)
            except rig.RigError as e:
                rig.say(f"{name} is given up: {e}")
                continue
            show(name, results[name])
    rig.save(args, "reload_load", results, servers.versions(args, names))


def measured(args, server, count):
    server.start()
    drill, began = Drill(args, server), time.monotonic()
    try:
        tenth = drill.run(range(1, 11), WARM_S)
        last = drill.run(range(11, count + 1), SETTLE_S)
    finally:
        server.stop()
    late = [kib for turn, kib in drill.anon_kib.items() if turn > count - 10]
    early = [kib for turn, kib in drill.anon_kib.items() if turn <= 15]
    return {"reloads": count, "refused": count // 10, "ended": drill.ended,
            "seconds": time.monotonic() - began, "wall_s": rig.median(drill.walls),
            "wall_max_s": max(drill.walls), "tenth": tenth, "last": last, "early_kib": min(early),
            "late_kib": min(late), "counts": drill.counts, "latency": drill.latency}


class Drill:
    """Reloads under load, and what came of them."""

    def __init__(self, args, server):
        self.args, self.server = args, server
        self.walls, self.anon_kib, self.ended, self.counts, self.latency = [], {}, 0, {}, {}

    def run(self, turns, settle_s):
        """The usage of the server after these reloads and their load."""
        with operated.Clients(self.args, self.server.port, kept=64, rate=self.args.rate, downloads=20,
                              uploads=20) as clients:
            time.sleep(settle_s)
            for turn in turns:
                time.sleep(GAP_S)
                self.turn(clients, turn)
                if turn in turns[-10:] or turn % 10 == 5:
                    self.anon_kib[turn] = self.server.usage()["anon_kib"]
            time.sleep(1)
            figures = clients.end()
        for phase, row in figures["counts"].items():
            known = self.counts.setdefault(phase, dict.fromkeys(row, 0))
            for kind, number in row.items():
                known[kind] += number
        self.latency = figures["latency"]
        time.sleep(IDLE_S)
        return self.server.usage()

    def turn(self, clients, turn):
        clients.phase("refused" if turn % 10 == 0 else "reloads")
        if turn % 10:
            self.walls.append(self.server.reload())
        elif not self.server.refuse():
            self.ended += 1
            self.server.stop()
            self.server.start()


def total(result, kind, phases=("reloads", "refused")):
    return sum(result["counts"].get(phase, {}).get(kind, 0) for phase in phases)


def show(name, r):
    counts = {kind: total(r, kind) for kind in steady.KINDS}
    refused = {kind: total(r, kind, ["refused"]) for kind in ("lost", "reset", "closed")}
    latency = r["latency"].get("reloads", {})
    rig.say(
        f"{name}: {r['reloads']} reloads in {r['seconds']:.0f} s ({r['wall_s'] * 1e3:.0f} ms each, at"
        f" most {r['wall_max_s'] * 1e3:.0f} ms), ended by a refusal {r['ended']}\n"
        f"   {counts['responses']} responses, lost {counts['lost']}, reset {counts['reset']}, closed"
        f" {counts['closed']}, announced {counts['announced']}, refused {counts['refused']}, wrong"
        f" {counts['wrong']} (of these at refusals {refused})\n"
        f"   downloads {counts['downloads']} whole, {counts['downloads_cut']} cut; uploads"
        f" {counts['uploads']} whole, {counts['uploads_cut']} cut; p99 {latency.get('p99_ms', 0):.1f} ms\n"
        f"   private KiB {r['early_kib']} to {r['late_kib']}; after 10: {r['tenth']}, after the last:"
        f" {r['last']}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"reload_load: {e}")
