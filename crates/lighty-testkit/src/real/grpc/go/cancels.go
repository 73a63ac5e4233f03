package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
)

// cancels sends unary calls while other callers cancel streams all the time, and says how many of
// the calls failed.
func cancels(address string, more []string) {
	calls := int64(must(strconv.Atoi(first(more))))
	c := newClient(address, more[1:])
	var sent, lost, cancelled atomic.Int64
	var over atomic.Bool
	var callers, cancellers sync.WaitGroup
	for n := range 4 {
		cancellers.Go(func() {
			for !over.Load() {
				c.cancelOne(n, cancelled.Add(1))
			}
		})
	}
	for range 8 {
		callers.Go(func() {
			for turn := sent.Add(1); turn <= calls; turn = sent.Add(1) {
				request := fmt.Appendf(nil, "call %d", turn)
				response, err := c.unary("Echo", request)
				if err != nil || !bytes.Equal(response, request) {
					say("lost", turn, string(response), words(err))
					lost.Add(1)
				}
			}
		})
	}
	callers.Wait()
	over.Store(true)
	cancellers.Wait()
	say("calls", calls, "lost", lost.Load(), "connections", c.opened.Load())
	if cancelled.Load() < calls/20 {
		fail("only", cancelled.Load(), "cancelled")
	}
	fmt.Println("enough")
}

// cancelOne begins a call and cancels it: at once, after its first response, or while it sends.
func (c *client) cancelOne(caller int, turn int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch (int64(caller) + turn) % 3 {
	case 0:
		c.begin(ctx, "Wait", nil)
	case 1:
		_ = must(receiveFrom(c.begin(ctx, "Wait", nil)))
	default:
		stream := c.stream(ctx, "Add")
		send(stream, make([]byte, 100_000))
	}
}
