"""Interleaved rounds against all servers, each void if the client was the limit."""
import rig
import servers


def measured(args, tuning, of_round, root=None):
    """{server: [figures of a round]}; of_round(server) makes one."""
    running = servers.start_all(args, servers.chosen(args, tuning, root))
    rows = {name: [] for name in running}
    try:
        for turn in range(args.rounds + 1):
            for name, server in running.items():
                with rig.Cores() as cores:
                    r = of_round(server)
                r |= {"void": cores.is_void(), "server": cores.server, "client": cores.client}
                if turn:        # the first one warms
                    rows[name].append(r)
    finally:
        for server in running.values():
            server.stop()
    return rows


def show(label, rows):
    rig.say(f"\n{label}: CPU microseconds, median [range]")
    for name, rounds in rows.items():
        us = [r["us_per_request"] for r in rounds]
        rig.say(f"  {name:12s} {rig.median(us):8.2f} [{min(us):.2f}-{max(us):.2f}]"
                f"  {rig.median([r['rps'] for r in rounds]):7.0f}/s"
                f"  bad {sum(r['bad'] for r in rounds)}  void {sum(r['void'] for r in rounds)}")
