"""The experiments: what each shows, what would disprove it, and the ancestor's figure that it repeats.

`run.py` makes them, `report.py` writes them down.
"""
import dataclasses

import rig


@dataclasses.dataclass(frozen=True)
class Experiment:
    name: str           # of the script, and of its results
    figures: tuple      # of docs/experiments.md
    ancestor: tuple     # lighttpd 1.5's figures (F1 to F12) that it repeats
    minutes: int
    shows: str
    disproved: str      # by what
    needs: str = ""     # diskbed, a build

    @property
    def script(self):
        return f"{rig.HERE}/{self.name}.py"

    def is_called(self, word):
        return word.lower() in {self.name, *self.figures, *(f.lower() for f in self.ancestor)}


ALL = [
    Experiment("hot", ("1", "2"), ("F11",), 8,
               "A warm file costs less CPU than with any peer.",
               "a peer with less CPU per request, asked by a client that is not the limit"),
    Experiment("table", ("18",), ("F11",), 8,
               "Beside the peers: CPU, rate, latencies and memory for files of four sizes.",
               "a row in which a peer costs less"),
    Experiment("vhosts", (), (), 2,
               "A thousand virtual hosts cost a request what one does.",
               "a request that costs a tenth more than with one host"),
    Experiment("instructions", (), (), 3,
               "A change costs no request more than a percent of its instructions.",
               "a row over 1.01 of the binary before, which --before names"),
    Experiment("cold", ("3a",), ("F1", "F9", "F12"), 25,
               "Cold files come as fast as the disk allows, and the event loop never waits for it.",
               "an event loop that is stopped, or fewer fetches than 0.95 of the disk's limit",
               "diskbed"),
    Experiment("neighbour", ("3b",), (), 25,
               "A client of hot files does not feel one that waits for the disk.",
               "its p99 twice as high beside cold files", "diskbed"),
    Experiment("hotset", ("3c",), ("F11",), 6,
               "A network backend that is good with cold files costs nothing with warm ones.",
               "a backend that needs more CPU for warm files than linux-sendfile"),
    Experiment("memory", ("4",), (), 1,
               "An idle connection holds at most 1.5 KiB.",
               "more than that for each of 10,000 idle connections"),
    Experiment("allocations", ("5",), (), 3,
               "A warm request allocates nothing.", "an allocation", "a build"),
    Experiment("drills", ("6",), (), 6,
               "Abuse and failing disks harm nobody else.", "an innocent client that feels it"),
    Experiment("proxy", ("7",), (), 5,
               "A proxied response costs less CPU than with any peer.",
               "a peer with less CPU per request"),
    Experiment("balance", ("8",), ("F5",), 2,
               "Shortest queue first uses two backends of unequal speed as far as they go.",
               "less than 1.51 times what taking turns reaches"),
    Experiment("failover", ("9",), (), 8,
               "A backend that dies or restarts costs no request.", "a lost request"),
    Experiment("php", ("10",), ("F8",), 2,
               "A response from PHP-FPM costs less CPU than with any peer, and fewer system calls.",
               "a peer with less CPU per request"),
    Experiment("burst", (), (), 6,
               "A burst to few processes waits in the backlog and is answered.",
               "a failed request, or a longer wait than with a peer"),
    Experiment("deflate", ("11",), (), 8,
               "Compressing is fast, and delays nobody else.",
               "a neighbour's p99 twice as high, or a filter that costs who does not ask for it"),
    Experiment("rules", ("12",), (), 5,
               "Ten thousand rules cost a request next to nothing.",
               "a request that costs a tenth more than without rules"),
    Experiment("scripts", ("13",), ("F7",), 3,
               "A script in the server answers five times as fast as PHP behind it.",
               "less than 5.04 times PHP's rate, or a peer's Lua that is faster"),
    Experiment("magnet", ("22",), (), 8,
               "A request for a script costs less CPU than with lighttpd 1.4, and reloads cost no memory.",
               "more than 0.95 of lighttpd's CPU, or 2 KiB that a reload leaves"),
    Experiment("stat_accel", ("14",), ("F6",), 8,
               "Threads of the server open cold files faster than a helper program does.",
               "fewer fetches a second than with fcgi-stat-accel", "diskbed"),
    Experiment("floods", ("15",), (), 6,
               "Attacks by HTTP/2 are cut before they cost anything.",
               "an innocent client that feels one, or memory beyond the row's limit"),
    Experiment("tls", ("16",), (), 6,
               "TLS, HTTP/2 and handshakes cost less CPU than with any peer.",
               "a peer with less CPU"),
    Experiment("metrics", ("17",), (), 1,
               "Metrics cost next to nothing, to record and to ask for.",
               "a scrape of 1,000 backends over 20 ms, a neighbour that feels it, series of clients' "
               "words"),
    Experiment("quickstart", ("23",), (), 3,
               "A server without a configuration costs less than Caddy's commands and Python's.",
               "more CPU per request, more memory, or a later first response"),
    Experiment("short", ("24",), (), 2,
               "A short connection costs less CPU than with any peer.",
               "more than 0.80 of the best peer's CPU"),
    Experiment("pages", ("25",), (), 2,
               "A page and its files cost less CPU than with any peer.",
               "more than 0.85 of the best peer's CPU"),
    Experiment("proxied_uploads", ("26",), (), 4,
               "An upload through the proxy costs less CPU than with nginx and HAProxy.",
               "more than 0.90 of the better one's CPU"),
    Experiment("inflight", ("27",), (), 1,
               "A proxied request in flight holds at most 8 KiB.",
               "more than that for each of 1,000 requests, or more than a peer's"),
    Experiment("large", ("19",), ("F2", "F3"), 10,
               "Large cold files come fastest in chunks of the default size, to any number of clients.",
               "a chunk size 1.1 times as fast, or an event loop that reads by itself and is faster",
               "diskbed"),
    Experiment("starve", ("20",), ("F12",), 15,
               "The default number of reads suits one disk, two, and a fast one.",
               "another number that is 1.1 times as fast on one of them", "diskbed"),
    Experiment("upload", ("21",), (), 3,
               "An upload over a long way is as fast by HTTP/2 as by HTTP/1.1.",
               "less than 0.9 of the rate by HTTP/1.1"),
    Experiment("generators", (), (), 2,
               "`lighty load` costs no more than wrk and oha, and finds the same percentiles.",
               "another client that spends less CPU on a request"),
    Experiment("reload", ("28",), (), 3,
               "A reload with 10,000 sites delays nobody.",
               "a second for a reload, 5 ms without the event loop, 1.2 times a client's p99, or 2.2 "
               "times the memory"),
    Experiment("reload_load", ("29",), (), 20,
               "A thousand reloads under load lose nothing and leave nothing behind.",
               "a request lost, a kept connection closed, 2 MB more memory, a descriptor or a thread"),
    Experiment("reload_tunnels", ("30",), (), 8,
               "WebSockets and event streams live through reloads, and hold no old configuration.",
               "one that ends, an echo after 50 ms, or 4 KiB held for each"),
    Experiment("upgrade", ("31",), (), 10,
               "An upgrade refuses and loses no request.",
               "a request lost or refused, or a second until the new process is ready"),
    Experiment("refusals", ("32",), (), 12,
               "A configuration with a fault changes nothing and leaves nothing behind.",
               "another status than 1, or a descriptor, thread, socket or process more"),
    Experiment("control_flood", ("33",), (), 4,
               "Misuse of the control socket is felt by no client.",
               "a request that fails, a p99 of 1 ms more, or a socket that does not answer afterwards"),
    Experiment("cached", (), (), 4,
               "A stored response costs about as much CPU as a file, and less than with any peer.",
               "more than 1.15 of a file's CPU, or more than a peer's"),
    Experiment("cold_cached", (), (), 12,
               "Stored responses on a disk that seeks come faster than with nginx, and the event loop "
               "never waits for the disk.",
               "less than 1.3 times what nginx with aio threads reaches, or an event loop that is "
               "stopped", "diskbed"),
    Experiment("misses", (), (), 4,
               "A thousand requests for a response that is not stored ask the backend once.",
               "a second request, or a client that waits 5 ms longer than the response took"),
    Experiment("fairness", (), (), 15,
               "Downloads from a disk that seeks do not delay small files.",
               "small files whose p99 is 1.5 times as high beside downloads", "diskbed"),
    Experiment("forward_auth", (), (), 4,
               "A decision of an authentication service costs little more than a proxied request.",
               "more than 1.1 proxied requests, or more than with nginx or Caddy"),
    Experiment("starts", (), (), 4,
               "No client is lost while a server starts or ends.", "a lost client"),
]


def of(name):
    """The experiment whose results have that name."""
    return next(one for one in ALL if one.name == name)


def chosen(words):
    """Those that are called by name, figure or the ancestor's figure; all without words."""
    found = [one for one in ALL if not words or any(one.is_called(word) for word in words)]
    for word in words:
        if not any(one.is_called(word) for one in found):
            raise rig.RigError(f"no experiment is called {word}; --list tells which there are")
    return found
