"""Instructions in user space, as callgrind counts them.

A count leaves out the start of the server and the first requests: it lies between two dumps.
"""
import os
import re
import subprocess
import time

import client
import rig


class Counter:
    """Dumps of one server's callgrind.  Start the server by `tool` before its own command."""

    def __init__(self, directory):
        os.makedirs(directory, exist_ok=True)
        self.dumps = directory + "/callgrind.out"
        self.number = 0
        for old in os.listdir(directory):
            if old.startswith("callgrind.out"):
                os.unlink(f"{directory}/{old}")
        self.tool = ["valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=" + self.dumps]

    def since_last(self, pid):
        """Instructions since the last dump."""
        self.number += 1
        subprocess.run(["callgrind_control", "-d", str(pid)], check=True, capture_output=True)
        path = f"{self.dumps}.{self.number}"
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if os.path.exists(path):
                with open(path, errors="replace") as f:
                    found = re.search(r"^(?:summary|totals): (\d+)", f.read(), re.M)
                if found:
                    return int(found.group(1))
            time.sleep(0.1)
        raise rig.RigError(f"callgrind writes no {path}")

    def per_request(self, server, path, requests, fields=""):
        """Instructions of one request on a kept connection, the second time that it is asked."""
        for _ in range(2):
            ask(server.port, path, requests, fields)
            count = self.since_last(server.pid)
        return count / requests


def ask(port, path, count, fields=""):
    """So many requests by one connection, whatever the status."""
    request = client.head(path, fields)
    with client.connect(port, 30) as s:
        for _ in range(count):
            s.sendall(request)
            client.read_message(s)
