"""Calls the service of server.py in every way that gRPC knows, and says each result in a line."""
import sys
import threading

import grpc

PATIENCE_S = 30
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]


def channel_to(words):
    """A channel to an address, by TLS if a file of trusted authorities stands behind it."""
    address, *ca = words
    if not ca:
        return grpc.insecure_channel(address, OPTIONS)
    with open(ca[0], "rb") as file:
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read()), OPTIONS)


def say(name, value):
    print(f"{name}: {value}", flush=True)


def failed(call, *, is_stream=True):
    try:
        if is_stream:
            list(call)
        else:
            call.result()
        return "no error"
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()!r}"


if sys.argv[1] == "down":
    call = channel_to(sys.argv[2:]).unary_unary("/test.Echo/Echo").future(b"", timeout=PATIENCE_S)
    say("down", failed(call, is_stream=False))
    sys.exit()

def cancel_all_the_time(channel, over, count):
    """Begins calls and cancels them: at once, after the first response, or while they send."""
    wait = channel.unary_stream("/test.Echo/Wait")
    add = channel.stream_unary("/test.Echo/Add")
    while not over.is_set():
        count.append(1)
        if len(count) % 3 == 0:
            wait(b"", timeout=PATIENCE_S).cancel()
        elif len(count) % 3 == 1:
            waiting = wait(b"", timeout=PATIENCE_S)
            next(waiting)
            waiting.cancel()
        else:
            add.future(iter([bytes(100_000), b""]), timeout=PATIENCE_S).cancel()


def call_among_cancellations(channel, calls):
    """Sends unary calls, eight at a time, and says how many failed."""
    over, cancelled, lost = threading.Event(), [], []
    cancellers = [threading.Thread(target=cancel_all_the_time, args=(channel, over, cancelled))
                  for _ in range(2)]
    for canceller in cancellers:
        canceller.start()
    echo = channel.unary_unary("/test.Echo/Echo")
    for first in range(0, calls, 8):
        futures = [(n, echo.future(b"%d" % n, timeout=PATIENCE_S)) for n in range(first, first + 8)]
        for n, future in futures:
            if future.exception() or future.result() != b"%d" % n:
                lost.append(n)
                say("lost", f"{n} {failed(future, is_stream=False)}")
    over.set()
    for canceller in cancellers:
        canceller.join()
    say("calls", f"{calls} lost {len(lost)}")
    print("enough" if len(cancelled) >= calls // 20 else f"only {len(cancelled)} cancelled")


if sys.argv[1] == "cancels":
    call_among_cancellations(channel_to([sys.argv[2], *sys.argv[4:]]), int(sys.argv[3]))
    sys.exit()

channel = channel_to(sys.argv[1:])
echo = channel.unary_unary("/test.Echo/Echo")
count = channel.unary_stream("/test.Echo/Count")
add = channel.stream_unary("/test.Echo/Add")
talk = channel.stream_stream("/test.Echo/Talk")

metadata = (("x-say", "a word"), ("x-say-bin", bytes(range(256))))
answer, call = echo.with_call(b"text", metadata=metadata, timeout=PATIENCE_S)
trailers = dict(call.trailing_metadata())
say("unary", (answer, dict(call.initial_metadata()).get("x-first"), trailers.get("x-said"),
              trailers.get("x-sum-bin") == bytes(range(256))))
large = bytes(range(256)) * 20_000
say("empty", echo(b"", timeout=PATIENCE_S) == b"")
say("large", echo(large, timeout=PATIENCE_S) == large)
say("gzip", echo(large, timeout=PATIENCE_S, compression=grpc.Compression.Gzip) == large)
say("responses", sum(int(n) for n in count(b"5000", timeout=PATIENCE_S)))
say("requests", add((b"x" * n for n in range(2000)), timeout=PATIENCE_S))

# Each request is made of the response to the one before.
turn = threading.Semaphore(1)
talked = []


def requests():
    for n in range(200):
        turn.acquire()
        yield b"word %d" % n


for response in talk(requests(), timeout=PATIENCE_S):
    talked.append(response)
    turn.release()
say("turns", (len(talked), talked[-1]))

calls = [echo.future(b"%d" % n, timeout=PATIENCE_S) for n in range(300)]
say("at a time", sum(int(call.result()) for call in calls))

fail = channel.unary_unary("/test.Echo/Fail")
try:
    fail(b"", timeout=PATIENCE_S)
except grpc.RpcError as error:
    trailers = dict(error.trailing_metadata())
    say("failed", (error.code().name, error.details(), trailers["x-why"]))
    say("details", trailers["grpc-status-details-bin"][-13:])
nothing = channel.unary_unary("/test.Echo/Nothing")
say("unknown", failed(nothing.future(b"", timeout=PATIENCE_S), is_stream=False))

wait, how = channel.unary_stream("/test.Echo/Wait"), channel.unary_unary("/test.Echo/How")
waiting = wait(b"", timeout=PATIENCE_S)
say("begun", next(waiting))
waiting.cancel()
say("cancelled", (failed(waiting), how(b"", timeout=PATIENCE_S)))
# Whose clock is first decides about the words. A server whose clock it is may cancel the call.
for _ in range(5):
    code = failed(wait(b"", timeout=0.5)).split()[0]
    if code != "CANCELLED":
        break
say("deadline", code)
say("ended there", how(b"", timeout=PATIENCE_S))
