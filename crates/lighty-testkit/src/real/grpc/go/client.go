package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const patience = 30 * time.Second

// everyWay is the description of a stream, whatever its kind.
var everyWay = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// connections counts those that were opened.
type connections struct{ opened atomic.Int64 }

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *connections) HandleConn(_ context.Context, said stats.ConnStats) {
	if _, is := said.(*stats.ConnBegin); is {
		c.opened.Add(1)
	}
}

// client calls the service.
type client struct {
	*grpc.ClientConn
	connections
}

// newClient calls at an address, by TLS if a file of trusted authorities stands behind it.
func newClient(address string, ca []string, more ...grpc.DialOption) *client {
	trust := insecure.NewCredentials()
	if len(ca) > 0 {
		trust = must(credentials.NewClientTLSFromFile(ca[0], ""))
	}
	made := &client{}
	options := append(more,
		grpc.WithTransportCredentials(trust), grpc.WithStatsHandler(&made.connections),
		grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(
			grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	made.ClientConn = must(grpc.NewClient("passthrough:///"+address, options...))
	return made
}

func (c *client) unary(method string, request []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.unaryIn(ctx, method, request, options...)
}

func (c *client) unaryIn(ctx context.Context, method string, request []byte,
	options ...grpc.CallOption) (response []byte, err error) {
	err = c.Invoke(ctx, "/test.Echo/"+method, &request, &response, options...)
	return response, err
}

func (c *client) stream(ctx context.Context, method string) grpc.ClientStream {
	return must(c.NewStream(ctx, everyWay, "/test.Echo/"+method))
}

// begin sends the only request of a stream.
func (c *client) begin(ctx context.Context, method string, request []byte) grpc.ClientStream {
	stream := c.stream(ctx, method)
	send(stream, request)
	_ = must(0, stream.CloseSend())
	return stream
}

func send(stream grpc.ClientStream, message []byte) {
	// Why the stream has ended is said by who receives.
	if err := stream.SendMsg(&message); err != nil && err != io.EOF {
		fail(err)
	}
}

func receiveFrom(stream grpc.ClientStream) (message []byte, err error) {
	err = stream.RecvMsg(&message)
	return message, err
}

// drain returns why a stream has ended.
func drain(stream grpc.ClientStream) error {
	for {
		if _, err := receiveFrom(stream); err != nil {
			return err
		}
	}
}

func words(err error) string {
	said := status.Convert(err)
	return fmt.Sprintf("%v %q", said.Code(), said.Message())
}

// call calls the service in every way that gRPC knows, and says each result in a line.
func call(address string, ca []string) {
	c := newClient(address, ca)
	c.sayUnary()
	c.sayStreams()
	c.sayTurns()
	c.sayManyAtATime()
	c.sayErrors()
	c.sayEnds()
}

func (c *client) sayUnary() {
	every := make([]byte, 256)
	for n := range every {
		every[n] = byte(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-say", "a word", "x-say-bin", string(every))
	var head, trailers metadata.MD
	answer := must(c.unaryIn(ctx, "Echo", []byte("text"), grpc.Header(&head), grpc.Trailer(&trailers)))
	say("unary", string(answer), head["x-first"], trailers["x-said"],
		first(trailers["x-sum-bin"]) == string(every))
	say("empty", len(must(c.unary("Echo", nil))) == 0)
	large := bytes.Repeat(every, 20_000)
	say("large", bytes.Equal(must(c.unary("Echo", large)), large))
	packed := must(c.unary("Echo", large, grpc.UseCompressor("gzip")))
	say("gzip", bytes.Equal(packed, large))
}

func (c *client) sayStreams() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	responses, sum := c.begin(ctx, "Count", []byte("5000")), 0
	for {
		message, err := receiveFrom(responses)
		if err == io.EOF {
			break
		}
		sum += must(strconv.Atoi(string(must(message, err))))
	}
	say("responses", sum)
	requests := c.stream(ctx, "Add")
	for n := range 2000 {
		send(requests, bytes.Repeat([]byte("x"), n))
	}
	_ = must(0, requests.CloseSend())
	say("requests", string(must(receiveFrom(requests))), drain(requests))
}

// sayTurns makes each request of the response to the one before.
func (c *client) sayTurns() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream := c.stream(ctx, "Talk")
	message := []byte("word")
	for n := range 200 {
		send(stream, fmt.Appendf(message, " %d", n%10))
		message = must(receiveFrom(stream))
	}
	_ = must(0, stream.CloseSend())
	say("turns", len(message), drain(stream))
}

func (c *client) sayManyAtATime() {
	var sum atomic.Int64
	var calls sync.WaitGroup
	for n := range 500 {
		calls.Go(func() {
			answer := must(c.unary("Echo", strconv.AppendInt(nil, int64(n), 10)))
			sum.Add(must(strconv.ParseInt(string(answer), 10, 64)))
		})
	}
	calls.Wait()
	say("at a time", sum.Load())
}

func (c *client) sayErrors() {
	var trailers metadata.MD
	_, err := c.unary("Fail", nil, grpc.Trailer(&trailers))
	say("failed", words(err), trailers["x-why"])
	for _, detail := range status.Convert(err).Details() {
		info := detail.(*errdetails.ErrorInfo)
		say("details", info.GetReason(), info.GetDomain())
	}
	_, err = c.unary("Nothing", nil)
	say("unknown", words(err))
}

// sayEnds ends calls before the service does.
func (c *client) sayEnds() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	waiting := c.begin(ctx, "Wait", nil)
	say("begun", string(must(receiveFrom(waiting))))
	cancel()
	say("cancelled", words(drain(waiting)), string(must(c.unary("How", nil))))
	// Whose clock is first decides about the words. A server whose clock it is may cancel the call.
	code := codes.Canceled
	for try := 0; try < 5 && code == codes.Canceled; try++ {
		ctx, cancel = context.WithTimeout(context.Background(), time.Second/2)
		code = status.Code(drain(c.begin(ctx, "Wait", nil)))
		cancel()
	}
	say("deadline", code)
	say("ended there", string(must(c.unary("How", nil))))
}

// load calls without a pause until its input ends: many calls, and streams that are open all the
// time. For each line of input it says when 100 calls more have come back, and at last what was
// lost.
func load(address string, ca []string) {
	c := newClient(address, ca)
	var done, lost atomic.Int64
	var over atomic.Bool
	check := func(got, wanted []byte, err error) {
		if err != nil || !bytes.Equal(got, wanted) {
			lost.Add(1)
			say("lost", string(got), words(err))
		}
		done.Add(1)
	}
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for request := fmt.Appendf(nil, "call %d", n); !over.Load(); {
				response, err := c.unary("Echo", request)
				check(response, request, err)
			}
		})
		callers.Go(func() {
			stream := c.stream(context.Background(), "Talk")
			for !over.Load() {
				send(stream, []byte("word"))
				response, err := receiveFrom(stream)
				if check(response, []byte("WORD"), err); err != nil {
					return
				}
			}
			_ = must(0, stream.CloseSend())
			if err := drain(stream); err != io.EOF {
				check(nil, nil, err)
			}
		})
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		for until := done.Load() + 100; done.Load() < until; {
			time.Sleep(time.Millisecond)
		}
		say("more")
	}
	over.Store(true)
	callers.Wait()
	say("all", lost.Load(), "lost,", c.opened.Load(), "connection")
}

// rest has one call open until its input ends, with a PING whenever the connection rests. The
// library sends them at most every 10 seconds.
func rest(address string, ca []string) {
	c := newClient(address, ca, grpc.WithKeepaliveParams(keepalive.ClientParameters{
		Time: 10 * time.Second, Timeout: 20 * time.Second,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	waiting := c.begin(ctx, "Wait", nil)
	say("begun", string(must(receiveFrom(waiting))))
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	say("cancelled", words(drain(waiting)), string(must(c.unary("How", nil))))
	say("all", c.opened.Load(), "connection")
}
