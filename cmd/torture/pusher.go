package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// pusher sends events at a rate, over a few connections that it keeps as long as it is let, and
// counts each connection that is refused and each that ends without an answer. Unlike a usual
// client it hides none of them by trying again. A push is repeated until it is acknowledged.
type pusher struct {
	address string
	began   time.Time
	workers []*pushWorker
	running sync.WaitGroup
	end     context.CancelFunc

	acknowledged, refused, reset, busy atomic.Uint64 // events; connections; connections; answers other than 2xx
	made                               atomic.Uint64 // connections
	slowest                            atomic.Int64  // the longest wait for an acknowledgement, in nanoseconds
	lastError                          atomic.Value  // text
}

// pushWorker has one connection. It is of one goroutine.
type pushWorker struct {
	*pusher
	prefix string
	next   uint64 // number of its next event: those before are acknowledged
	conn   net.Conn
	read   *bufio.Reader
}

const (
	pushWorkers = 8
	pushEvents  = 100 // in each push
)

// startPusher pushes to the relay of a scene, at so many events a second.
func (s *scene) startPusher(ctx context.Context, rate float64) *pusher {
	p := &pusher{address: s.ingest, began: time.Now()}
	ctx, p.end = context.WithCancel(ctx)
	every := time.Duration(float64(time.Second) * pushWorkers * pushEvents / rate)
	for i := range pushWorkers {
		w := &pushWorker{pusher: p, prefix: fmt.Sprintf("event-log-pusher%d-", i)}
		p.workers = append(p.workers, w)
		p.running.Go(func() { w.run(ctx, every) })
	}
	return p
}

// stop ends the load, once the pushes under way are acknowledged, and adds them to the scene's
// ledgers.
func (p *pusher) stop(s *scene) {
	p.end()
	p.running.Wait()
	for _, w := range p.workers {
		l := workspacesim.Ledger{Prefix: w.prefix, Acknowledged: []workspacesim.Range{{From: 0, To: w.next}}}
		l.Counts.Acknowledged = w.next
		s.ledgers = append(s.ledgers, l)
	}
}

// verdict is an error if a connection was refused or reset.
func (p *pusher) verdict() error {
	if p.refused.Load()+p.reset.Load() > 0 {
		return fmt.Errorf("%d connections were refused, and %d ended without an answer; the last error: %v", p.refused.Load(), p.reset.Load(), p.lastError.Load())
	}
	return nil
}

func (p *pusher) String() string {
	rate := float64(p.acknowledged.Load()) / time.Since(p.began).Seconds()
	return fmt.Sprintf("%.0f events/s, %d connections, %d refused, %d reset, %d answers that asked to wait; the longest wait for an answer %s",
		rate, p.made.Load(), p.refused.Load(), p.reset.Load(), p.busy.Load(), time.Duration(p.slowest.Load()).Round(10*time.Millisecond))
}

func (w *pushWorker) run(ctx context.Context, every time.Duration) {
	defer func() {
		if w.conn != nil {
			_ = w.conn.Close()
		}
	}()
	for due := time.Now(); ctx.Err() == nil; due = due.Add(every) { // what was late is made up for
		if retry.Sleep(ctx, time.Until(due)) != nil {
			return
		}
		body := w.body()
		for began := time.Now(); !w.push(body); time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > patience {
				w.lastError.Store("a push was not acknowledged in " + patience.String())
				w.reset.Add(1)
				return
			}
		}
		w.next += pushEvents
		w.acknowledged.Add(pushEvents)
	}
}

// body is the next push in Loki's form.
func (w *pushWorker) body() []byte {
	var b bytes.Buffer
	b.WriteString(`{"streams":[{"stream":{"app":"pusher"},"values":[`)
	for n := w.next; n < w.next+pushEvents; n++ {
		if n > w.next {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `["%d","{\"event_id\":\"%s\",\"action\":\"LOGIN\",\"filler\":\"%0200d\"}"]`, time.Now().UnixNano(), workspacesim.EventID(w.prefix, n), n)
	}
	b.WriteString(`]}]}`)
	return b.Bytes()
}

// push sends a body once, and reports whether it was acknowledged.
func (w *pushWorker) push(body []byte) bool {
	began := time.Now()
	if w.conn == nil {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(context.Background(), "tcp", w.address)
		if err != nil {
			w.refused.Add(1)
			w.lastError.Store(err.Error())
			return false
		}
		w.made.Add(1)
		w.conn, w.read = conn, bufio.NewReader(conn)
	}
	code, last, err := w.exchange(body)
	if err != nil || last {
		_ = w.conn.Close()
		w.conn = nil
	}
	if err != nil {
		w.reset.Add(1)
		w.lastError.Store(err.Error())
		return false
	}
	if code/100 != 2 {
		w.busy.Add(1)
		w.lastError.Store(fmt.Sprintf("status %d", code))
		return false
	}
	for took := int64(time.Since(began)); ; {
		if was := w.slowest.Load(); took <= was || w.slowest.CompareAndSwap(was, took) {
			return true
		}
	}
}

// exchange sends a body on the connection; last says that the relay closes it.
func (w *pushWorker) exchange(body []byte) (code int, last bool, err error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+w.address+"/loki/api/v1/push", bytes.NewReader(body)) //nolint:noctx // the connection has a deadline
	if err != nil {
		return 0, false, err
	}
	req.SetBasicAuth(pushUser, pushPassword)
	req.Header.Set("Content-Type", "application/json")
	if err := w.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, false, err
	}
	if err := req.Write(w.conn); err != nil {
		return 0, false, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(w.read, req)
	if err != nil {
		return 0, false, fmt.Errorf("read the answer: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // it was read
	return resp.StatusCode, resp.Close, err
}
