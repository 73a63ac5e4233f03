#!/usr/bin/env python3
"""Clients that connect while a server starts and while it ends in order: how many are lost.

16 clients connect to one port, ask for a small file and connect again, all the time.  The server
is started and ended in order (lighty, lighttpd: INT; nginx: QUIT) again and again.  A connection
that is refused was never made and does not count; one that was made and brings no whole answer is
lost, to the start or to the end, whichever was under way.  Required of lighty: none in 100 starts.
"""
import multiprocessing
import signal
import socket
import subprocess
import time

import rig
import servers

CLIENTS = 16
SERVING_S = 0.3             # between a start and an end
ENDING_S_MAX = 15
WORKERS = {"lighty": "server.max-worker := 2"}
END = {"lighty": signal.SIGINT, "lighttpd": signal.SIGINT, "nginx": signal.SIGQUIT}
REQUEST = b"GET /index.html HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
STARTING, SERVING, ENDING = range(3)
NAMES = ["start", "between", "end"]


def main():
    ap = rig.arguments(__doc__, "lighty,nginx:2w,lighttpd")
    ap.add_argument("--starts", type=int, default=100, metavar="N", help="(%(default)s)")
    args = ap.parse_args()
    root = rig.document_root(args.out)
    wanted = servers.chosen(args, servers.Tuning(rules=WORKERS), root=root)
    results = {}
    rig.say(f"{'server':14s} {'starts':>6s} {'answered':>9s} "
            + " ".join(f"{'lost: ' + name:>14s}" for name in NAMES))
    for name, make in wanted:
        results[name] = measure(args, name, make)
        lost = " ".join(f"{results[name]['lost'][n]:14d}" for n in NAMES)
        rig.say(f"{name:14s} {args.starts:6d} {results[name]['answered']:9d} {lost}")
        for how, count in sorted(results[name]["how"].items()):
            rig.say(f"               {count} x {how}")
    rig.save(args, "starts", results, servers.versions(args, dict(wanted)))


def measure(args, name, make):
    argv, port = make()
    phase = multiprocessing.Value("i", SERVING)
    over = multiprocessing.Event()
    counts = multiprocessing.Queue()
    # Nobody else is given the port between two starts.
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", port))
    clients = [multiprocessing.Process(target=ask_until, args=(port, phase, over, counts))
               for _ in range(CLIENTS)]
    for one in clients:
        one.start()
    try:
        with open(servers.log_of(args, name), "ab") as log:
            for _ in range(args.starts):
                start_and_end(argv, END[name.partition(":")[0]], log, port, phase)
    finally:
        over.set()
        told = [counts.get(timeout=30) for _ in clients]
        for one in clients:
            one.join()
        holder.close()
    lost = {n: sum(t[1][i] for t in told) for i, n in enumerate(NAMES)}
    how = {}
    for _, _, ways in told:
        for way, count in ways.items():
            how[way] = how.get(way, 0) + count
    return {"starts": args.starts, "answered": sum(t[0] for t in told), "lost": lost, "how": how}


def start_and_end(argv, end, log, port, phase):
    phase.value = STARTING
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               start_new_session=True)
    deadline = time.monotonic() + 10
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise rig.RigError(f"{argv[0]} does not start on port {port}")
        time.sleep(0.01)
    time.sleep(SERVING_S)
    phase.value = ENDING
    process.send_signal(end)
    try:
        process.wait(ENDING_S_MAX)
    except subprocess.TimeoutExpired:
        for pid in rig.tree(process.pid):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        process.wait()


def listens(port):
    with socket.socket() as s:
        s.settimeout(0.5)
        return s.connect_ex(("127.0.0.1", port)) == 0


def ask_until(port, phase, over, counts):
    answered, lost, ways = 0, [0] * len(NAMES), {}
    while not over.is_set():
        began = phase.value
        way = ask(port)
        if way == "refused":
            time.sleep(0.0002)
        elif way:
            lost[began] += 1
            ways[way] = ways.get(way, 0) + 1
        else:
            answered += 1
    counts.put((answered, lost, ways))


def ask(port):
    """None: a whole answer."""
    with socket.socket() as s:
        s.settimeout(10)
        try:
            s.connect(("127.0.0.1", port))
        except OSError:
            return "refused"
        if s.getsockname() == s.getpeername():
            return "refused"    # it found itself: nobody listened
        got = b""
        try:
            s.sendall(REQUEST)
            while piece := s.recv(65536):
                got += piece
        except OSError as e:
            return type(e).__name__
        if not got:
            return "closed without an answer"
        return None if b" 200 " in got[:20] and got.endswith(rig.SMALL) else "a part of an answer"


if __name__ == "__main__":
    main()
