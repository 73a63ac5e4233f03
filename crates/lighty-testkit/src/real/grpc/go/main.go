// Command grpc-peer is a gRPC service without message types, and a client of it, as grpc-go has
// them: what is sent are the bytes themselves. Its counterparts are server.py and client.py.
package main

import (
	"fmt"
	"os"
)

const usage = `usage: grpc-peer serve ADDRESS [PEM]
       grpc-peer call|load|rest ADDRESS [CA]
       grpc-peer cancels ADDRESS CALLS [CA]`

// bytesCodec passes messages as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(message any) ([]byte, error) {
	return *message.(*[]byte), nil
}

func (bytesCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

func main() {
	if len(os.Args) < 3 {
		fail(usage)
	}
	commands := map[string]func(string, []string){
		"serve": serve, "call": call, "load": load, "rest": rest, "cancels": cancels,
	}
	command, known := commands[os.Args[1]]
	if !known {
		fail(usage)
	}
	command(os.Args[2], os.Args[3:])
}

func say(name string, words ...any) {
	fmt.Println(append([]any{name + ":"}, words...)...)
}

func fail(words ...any) {
	fmt.Fprintln(os.Stderr, words...)
	os.Exit(1)
}

// must returns a value that cannot be done without.
func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}
