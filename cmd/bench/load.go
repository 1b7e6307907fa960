package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/snappy"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// idPrefix is how the events' ids begin. A workspacesim.Tally counts such ids.
const idPrefix = "event-log-bench.load-1-"

// benchKey is the Datadog API key of the load.
const benchKey = "0123456789abcdef0123456789abcdef"

// load holds whole HTTP requests, made before the clock starts.
type load struct {
	requests   [][]byte
	batch      int
	eventBytes float64 // mean size of an event's body
}

// makeLoad makes the requests of a row. Events are about 617 bytes of JSON.
func makeLoad(r row) (*load, error) {
	l := &load{batch: r.batch, requests: make([][]byte, (r.events+r.batch-1)/r.batch)}
	pool := relaytest.Events(2000, relaytest.BodyBytes(617))
	var failed atomic.Pointer[error]
	var making sync.WaitGroup
	const makers = 2
	for m := range makers {
		making.Go(func() {
			for p := m; p < len(l.requests); p += makers {
				events := make([][]byte, min(r.batch, r.events-p*r.batch))
				for i := range events {
					seq := p*r.batch + i
					events[i] = withID(pool[seq%len(pool)], workspacesim.EventID(idPrefix, uint64(seq)))
				}
				request, err := makeRequest(r.format, events)
				if err != nil {
					failed.Store(&err)
					return
				}
				l.requests[p] = request
			}
		})
	}
	making.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	l.eventBytes = float64(len(withID(pool[0], workspacesim.EventID(idPrefix, 0))))
	return l, nil
}

// withID returns the event's body with another id in place of its own.
func withID(e relay.Event, id string) []byte {
	return bytes.Replace(e.Body, []byte(e.ID), []byte(id), 1)
}

func makeRequest(format string, events [][]byte) ([]byte, error) {
	var body []byte
	var err error
	path, contentType := "/loki/api/v1/push", "application/json"
	switch format {
	case "json":
		body, err = pushes.Loki(nil, streamsOf(events))
	case "proto":
		body, contentType = snappy.Encode(nil, pushes.LokiProto(nil, streamsOf(events))), "application/x-protobuf"
	case "datadog":
		path = "/api/v2/logs"
		body, err = datadogBody(events)
	}
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: relay\r\nContent-Type: %s\r\nDD-API-KEY: %s\r\nContent-Length: %d\r\n\r\n", path, contentType, benchKey, len(body))
	return append([]byte(head), body...), nil
}

// streamsOf puts the events into two streams.
func streamsOf(events [][]byte) []pushes.Stream {
	streams := make([]pushes.Stream, min(2, len(events)))
	for s := range streams {
		streams[s].Labels = []relay.Label{{Name: "app", Value: "idp"}, {Name: "env", Value: "prod"}, {Name: "realm", Value: fmt.Sprint("eu-", s)}}
	}
	now := time.Now().UnixNano()
	for i, e := range events {
		s := &streams[i%len(streams)]
		s.Entries = append(s.Entries, pushes.Entry{Time: now + int64(i), Line: e})
	}
	return streams
}

func datadogBody(events [][]byte) ([]byte, error) {
	logs := make([]pushes.Log, len(events))
	for i, e := range events {
		logs[i] = pushes.Log{Message: e, Source: "idp", Service: "idp", Hostname: "idp-1", Tags: "env:prod", Time: time.Now().UnixNano()}
	}
	return pushes.Datadog(nil, logs)
}

// outcome is the result of a load.
type outcome struct {
	start, lastAck time.Time
	acked          []bool          // by request
	latencies      []time.Duration // of acknowledged requests, ascending
}

// push sends the load over conns connections, each with one request at a time. It sends a
// request again until it is acknowledged. A rate above 0 bounds the events per second; latency
// then counts from the time when a request was due.
func (l *load) push(ctx context.Context, address string, conns int, rate float64) (*outcome, error) {
	o := &outcome{start: time.Now(), acked: make([]bool, len(l.requests))}
	latency := make([]time.Duration, len(l.requests))
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	var pushing sync.WaitGroup
	for range conns {
		pushing.Go(func() {
			c := &client{address: address}
			defer c.close()
			for ctx.Err() == nil {
				p := int(next.Add(1) - 1)
				if p >= len(l.requests) {
					return
				}
				due := time.Now()
				if rate > 0 {
					due = o.start.Add(time.Duration(float64(p*l.batch) / rate * 1e9))
					sleepUntil(due)
				}
				if err := c.push(ctx, l.requests[p]); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				latency[p], o.acked[p] = time.Since(due), true
			}
		})
	}
	pushing.Wait()
	o.lastAck = time.Now()
	for p, ok := range o.acked {
		if ok {
			o.latencies = append(o.latencies, latency[p])
		}
	}
	slices.Sort(o.latencies)
	return o, failed
}

func (o *outcome) quantile(q float64) float64 {
	if len(o.latencies) == 0 {
		return 0
	}
	return o.latencies[min(len(o.latencies)-1, int(q*float64(len(o.latencies))))].Seconds() * 1e3
}

// client is a bare HTTP client: one write, one read. It leaves most of the machine
// to the relay.
type client struct {
	address string
	conn    net.Conn
	reader  *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// push pushes until the request is acknowledged.
func (c *client) push(ctx context.Context, request []byte) error {
	for tries := 0; ; tries++ {
		status, err := c.try(ctx, request)
		switch {
		case err == nil && status/100 == 2:
			return nil
		case err == nil && status/100 == 4 && status != http.StatusTooManyRequests:
			return fmt.Errorf("push was answered with %d", status)
		case tries > 600 || ctx.Err() != nil:
			return fmt.Errorf("push was not acknowledged: status %d, %w", status, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// try sends the request once. It sends it twice if the server has closed a
// connection after an earlier request, as HTTP clients do.
func (c *client) try(ctx context.Context, request []byte) (status int, err error) {
	for used := c.conn != nil; ; used = false {
		if c.conn == nil {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
			if err != nil {
				return 0, err
			}
			c.conn, c.reader = conn, bufio.NewReaderSize(conn, 4096)
		}
		if status, err = c.exchange(request); err == nil {
			return status, nil
		}
		c.close()
		if !used {
			return 0, err
		}
	}
}

func (c *client) exchange(request []byte) (int, error) {
	if err := c.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}
