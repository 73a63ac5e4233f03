package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	patience    = 30 * time.Second
	uploadBytes = 7 << 20
)

// client sends requests to one server.
type client struct {
	http.Client
	base string
}

// requests sends the series of requests that every client of real/clients.rs sends, and prints a
// line for each.
func requests(base string, ca []string) {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(ca[0])))
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: trusted},
		ForceAttemptHTTP2: true,
		// A server that answers 100 does so at once.
		ExpectContinueTimeout: patience,
	}
	c := &client{http.Client{Transport: transport, Timeout: patience}, base}
	c.sayDownloads()
	c.sayUploads()
	c.sayEnds()
}

func (c *client) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	return must(http.NewRequestWithContext(ctx, method, c.base+path, body))
}

// get returns a response and its whole body.
func (c *client) get(method, path string, body io.Reader) (*http.Response, []byte) {
	response := must(c.Do(c.request(context.Background(), method, path, body)))
	defer response.Body.Close()
	return response, must(io.ReadAll(response.Body))
}

func (c *client) hello() string {
	_, body := c.get("GET", "/hello.txt", nil)
	return strings.TrimSpace(string(body))
}

func hash(content []byte) (sum uint32) {
	for _, b := range content {
		sum = sum*31 + uint32(b)
	}
	return sum
}

func (c *client) sayDownloads() {
	response, body := c.get("GET", "/hello.txt", nil)
	say("get", fmt.Sprintf("HTTP/%d", response.ProtoMajor), response.StatusCode, string(body))
	request := c.request(context.Background(), "GET", "/hello.txt", nil)
	request.Header.Set("If-None-Match", response.Header.Get("ETag"))
	again := must(c.Do(request))
	again.Body.Close()
	say("validated", again.StatusCode)
	response, _ = c.get("HEAD", "/large", nil)
	say("head", response.StatusCode, response.ContentLength)
	response, body = c.get("GET", "/large", nil)
	say("large", response.StatusCode, len(body), hash(body))
	var right atomic.Int64
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			if c.hello() == "hello" {
				right.Add(1)
			}
		})
	}
	callers.Wait()
	say("many", right.Load())
}

func (c *client) sayUploads() {
	content := make([]byte, uploadBytes)
	response, body := c.get("POST", "/up.cgi", bytes.NewReader(content))
	say("upload", response.StatusCode, strings.TrimSpace(string(body)))
	// A reader whose length is not known.
	response, body = c.get("POST", "/early.cgi", io.MultiReader(bytes.NewReader(content)))
	say("streamed", response.StatusCode, strings.TrimSpace(string(body)))
	request := c.request(context.Background(), "POST", "/up.cgi", strings.NewReader("0123456789"))
	request.Header.Set("Expect", "100-continue")
	response = must(c.Do(request))
	say("expected", response.StatusCode,
		strings.TrimSpace(string(must(io.ReadAll(response.Body)))))
	response, _ = c.get("POST", "/missing", bytes.NewReader(content))
	say("refused", response.StatusCode)
}

// sayEnds ends requests before the server does.
func (c *client) sayEnds() {
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		response := must(c.Do(c.request(ctx, "GET", "/large", nil)))
		must(io.ReadFull(response.Body, make([]byte, 1000)))
		cancel()
		response.Body.Close()
	}
	say("cancelled", c.hello())
	for range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		content, writer := io.Pipe()
		go func() {
			_, _ = writer.Write(make([]byte, 100_000))
			cancel()
		}()
		if response, err := c.Do(c.request(ctx, "POST", "/up.cgi", content)); err == nil {
			fail("a request that was cut got", response.Status)
		}
	}
	say("cut", c.hello())
}
