package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/moby/spdystream"
)

const protocol = "SPDY/3.1"

// spdyServe answers `exec` as a kubelet does: the client opens the streams, `stdin` comes back in
// upper case on `stdout`, and the status follows on `error`.
func spdyServe(address string, _ []string) {
	handler := func(response http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Upgrade") != protocol {
			http.Error(response, "no upgrade to "+protocol, http.StatusBadRequest)
			return
		}
		response.Header().Set("Connection", "Upgrade")
		response.Header().Set("Upgrade", protocol)
		response.Header().Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
		response.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := response.(http.Hijacker).Hijack()
		if err != nil {
			fail(err)
		}
		exec(joined{conn, buffered.Reader})
	}
	fail(http.Serve(must(net.Listen("tcp", address)), http.HandlerFunc(handler)))
}

// joined reads what a parser has read already before the rest.
type joined struct {
	net.Conn
	reader *bufio.Reader
}

func (j joined) Read(into []byte) (int, error) { return j.reader.Read(into) }

func exec(conn net.Conn) {
	streams := map[string]*spdystream.Stream{}
	opened := make(chan *spdystream.Stream, 8)
	connection := must(spdystream.NewConnection(conn, true))
	go connection.Serve(func(stream *spdystream.Stream) {
		_ = stream.SendReply(http.Header{}, false)
		opened <- stream
	})
	for len(streams) < 3 {
		select {
		case stream := <-opened:
			streams[stream.Headers().Get("streamType")] = stream
		case <-connection.CloseChan():
			return
		}
	}
	input, _ := io.ReadAll(streams["stdin"])
	_, _ = streams["stdout"].Write(bytes.ToUpper(input))
	_ = streams["stdout"].Close()
	_, _ = fmt.Fprintf(streams["error"], `{"status":"Success"}`)
	_ = streams["error"].Close()
	<-connection.CloseChan()
}

// spdyExec asks for the upgrade by POST, as kubectl does, and prints what comes back.
func spdyExec(base string, _ []string) {
	target := must(url.Parse(base + "/api/v1/namespaces/a/pods/b/exec?command=tr&stdin=true"))
	conn := must(net.Dial("tcp", target.Host))
	request := must(http.NewRequest("POST", target.String(), nil))
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	request.Header.Add("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	_ = must(0, request.Write(conn))
	reader := bufio.NewReader(conn)
	response := must(http.ReadResponse(reader, request))
	say("upgrade", response.StatusCode, response.Header.Get("Upgrade"),
		response.Header.Get("X-Stream-Protocol-Version"))
	connection := must(spdystream.NewConnection(joined{conn, reader}, false))
	go connection.Serve(spdystream.NoOpStreamHandler)
	stream := func(kind string) *spdystream.Stream {
		opened := must(connection.CreateStream(http.Header{"Streamtype": {kind}}, nil, false))
		_ = must(0, opened.Wait())
		return opened
	}
	status, input, output := stream("error"), stream("stdin"), stream("stdout")
	content := bytes.Repeat([]byte("a word "), 100_000)
	go func() {
		_, _ = input.Write(content)
		_ = input.Close()
	}()
	got := must(io.ReadAll(output))
	say("stdout", len(got), bytes.Equal(got, bytes.ToUpper(content)))
	say("error", string(must(io.ReadAll(status))))
	_ = connection.Close()
}
