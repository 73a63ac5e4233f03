"""A gRPC service without message types: what is sent are the bytes themselves."""
import sys
import threading
import time
from concurrent import futures

import grpc

ended = []  # How calls that were waited in have ended.


def echo(request, context):
    sent = dict(context.invocation_metadata())
    context.send_initial_metadata((("x-first", "1"),))
    context.set_trailing_metadata((("x-said", sent.get("x-say", "")),
                                   ("x-sum-bin", sent.get("x-say-bin", b""))))
    return request


def count(request, context):
    for n in range(int(request)):
        yield b"%d" % n


def add(requests, context):
    return b"%d" % sum(len(request) for request in requests)


def talk(requests, context):
    for request in requests:
        yield request.upper()


# google.rpc.Status with an ErrorInfo of the reason "asked" and the domain "test".
DETAILS = (b"\x08\x09\x12\x0bno: 50 % \xc3\xa4\x1a\x39"
           b"\x0a\x28type.googleapis.com/google.rpc.ErrorInfo"
           b"\x12\x0d\x0a\x05asked\x12\x04test")


def fail(request, context):
    context.set_trailing_metadata((("x-why", "it was asked for"),
                                   ("grpc-status-details-bin", DETAILS)))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 50 % \u00e4")


def wait(request, context):
    # Who asks how it ended does so for less time than it takes.
    gone = threading.Event()

    def end():
        ended.append("cancelled")
        gone.set()

    context.add_callback(end)
    yield b"begun"
    gone.wait(60)


def how(request, context):
    for _ in range(1000):
        if ended:
            return ended.pop().encode()
        time.sleep(0.01)
    return b"nothing"


asked = {"later": 0}


def health(request, context):
    """HealthCheckRequest { string service = 1; } to HealthCheckResponse { status = 1; }."""
    service = request[2:].decode()
    if service == "gone":
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    if service == "later":
        asked[service] += 1
    return b"\x08\x02" if service == "down" or asked.get(service, 9) < 4 else b"\x08\x01"


METHODS = {
    "Echo": grpc.unary_unary_rpc_method_handler(echo),
    "Count": grpc.unary_stream_rpc_method_handler(count),
    "Add": grpc.stream_unary_rpc_method_handler(add),
    "Talk": grpc.stream_stream_rpc_method_handler(talk),
    "Fail": grpc.unary_unary_rpc_method_handler(fail),
    "Wait": grpc.unary_stream_rpc_method_handler(wait),
    "How": grpc.unary_unary_rpc_method_handler(how),
}

server = grpc.server(futures.ThreadPoolExecutor(32),
                     options=[("grpc.max_receive_message_length", -1)])
for name, methods in {
    "test.Echo": METHODS,
    "grpc.health.v1.Health": {"Check": grpc.unary_unary_rpc_method_handler(health)},
}.items():
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
address = sys.argv[1]
if len(sys.argv) > 2:
    with open(sys.argv[2], "rb") as pem:
        pair = pem.read()
    server.add_secure_port(address, grpc.ssl_server_credentials([(pair, pair)]))
else:
    server.add_insecure_port(address)
server.start()
server.wait_for_termination()
