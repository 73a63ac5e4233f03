package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// ended holds how calls that were waited in have ended.
var ended = make(chan string, 1024)

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func echo(ctx context.Context, request []byte) ([]byte, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SendHeader(ctx, metadata.Pairs("x-first", "1"))
	said := metadata.Pairs("x-said", first(sent["x-say"]), "x-sum-bin", first(sent["x-say-bin"]))
	return request, grpc.SetTrailer(ctx, said)
}

func refuse(ctx context.Context, _ []byte) ([]byte, error) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-why", "it was asked for"))
	said := status.New(codes.FailedPrecondition, "no: 50 % \u00e4")
	why := &errdetails.ErrorInfo{Reason: "asked", Domain: "test"}
	return nil, must(said.WithDetails(why)).Err()
}

func how(context.Context, []byte) ([]byte, error) {
	select {
	case word := <-ended:
		return []byte(word), nil
	case <-time.After(10 * time.Second):
		return []byte("nothing"), nil
	}
}

// receive returns the next message, and false behind the last one.
func receive(stream grpc.ServerStream) ([]byte, bool, error) {
	var message []byte
	switch err := stream.RecvMsg(&message); err {
	case nil:
		return message, true, nil
	case io.EOF:
		return nil, false, nil
	default:
		return nil, false, err
	}
}

func count(_ any, stream grpc.ServerStream) error {
	request, _, err := receive(stream)
	if err != nil {
		return err
	}
	for n := range must(strconv.Atoi(string(request))) {
		message := strconv.AppendInt(nil, int64(n), 10)
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
	return nil
}

func add(_ any, stream grpc.ServerStream) error {
	sum := 0
	for {
		message, more, err := receive(stream)
		if err != nil {
			return err
		}
		if !more {
			said := strconv.AppendInt(nil, int64(sum), 10)
			return stream.SendMsg(&said)
		}
		sum += len(message)
	}
}

func talk(_ any, stream grpc.ServerStream) error {
	for {
		message, more, err := receive(stream)
		if err != nil || !more {
			return err
		}
		answer := bytes.ToUpper(message)
		if err := stream.SendMsg(&answer); err != nil {
			return err
		}
	}
}

func wait(_ any, stream grpc.ServerStream) error {
	if _, _, err := receive(stream); err != nil {
		return err
	}
	begun := []byte("begun")
	if err := stream.SendMsg(&begun); err != nil {
		return err
	}
	<-stream.Context().Done()
	select {
	case ended <- "cancelled":
	default:
		// No test asks a service whose calls are cancelled by the thousand.
	}
	return stream.Context().Err()
}

func unary(name string, answer func(context.Context, []byte) ([]byte, error)) grpc.MethodDesc {
	handler := func(_ any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		response, err := answer(ctx, request)
		return &response, err
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

func streaming(name string, handler grpc.StreamHandler) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName: name, Handler: handler, ServerStreams: true, ClientStreams: true,
	}
}

// serve answers at an address, by TLS if a file with a certificate and its key stands behind it.
func serve(address string, pair []string) {
	options := []grpc.ServerOption{
		grpc.ForceServerCodec(bytesCodec{}), grpc.MaxRecvMsgSize(1 << 30),
	}
	if len(pair) > 0 {
		pem := must(credentials.NewServerTLSFromFile(pair[0], pair[0]))
		options = append(options, grpc.Creds(pem))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{unary("Echo", echo), unary("Fail", refuse), unary("How", how)},
		Streams: []grpc.StreamDesc{
			streaming("Count", count), streaming("Add", add),
			streaming("Talk", talk), streaming("Wait", wait),
		},
	}, struct{}{})
	fail(server.Serve(must(net.Listen("tcp", address))))
}
