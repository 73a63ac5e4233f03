// Command http-peer is an HTTP client on net/http, and both ends of the SPDY/3.1 upgrade that
// kubectl uses.
package main

import (
	"fmt"
	"os"
)

const usage = `usage: http-peer requests URL CA
       http-peer spdy-serve ADDRESS
       http-peer spdy-exec URL`

func main() {
	if len(os.Args) < 3 {
		fail(usage)
	}
	commands := map[string]func(string, []string){
		"requests": requests, "spdy-serve": spdyServe, "spdy-exec": spdyExec,
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

// must returns a value that the program cannot do without.
func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}
