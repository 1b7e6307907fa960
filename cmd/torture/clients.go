package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// push pushes one event outside all ledgers, and returns the status and the Retry-After of the
// answer; 0 means that there was no answer.
func (s *scene) push(ctx context.Context) (code int, retryAfter string) { return s.pushOf(ctx, 0) }

// pushOf pushes an event with so many random bytes, which cannot be compressed.
func (s *scene) pushOf(ctx context.Context, random int) (code int, retryAfter string) {
	filler := make([]byte, random)
	_, _ = rand.Read(filler) // never fails
	now := time.Now().UnixNano()
	line := fmt.Sprintf(`{"streams":[{"stream":{"a":"b"},"values":[["%d","{\"event_id\":\"probe-%d\",\"x\":\"%s\"}"]]}]}`, now, now, base64.StdEncoding.EncodeToString(filler))
	return s.pushBody(ctx, strings.NewReader(line), int64(len(line)))
}

// pushID pushes one event with an id, and reports whether it was acknowledged.
func (s *scene) pushID(ctx context.Context, id string) bool {
	line := fmt.Sprintf(`{"streams":[{"stream":{"a":"b"},"values":[["%d","{\"event_id\":\"%s\"}"]]}]}`, time.Now().UnixNano(), id)
	code, _ := s.pushBody(ctx, strings.NewReader(line), int64(len(line)))
	return code == http.StatusNoContent
}

func (s *scene) pushBody(ctx context.Context, body io.Reader, size int64) (code int, retryAfter string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.ingest+"/loki/api/v1/push", body)
	if err != nil {
		return 0, ""
	}
	req.ContentLength = size
	req.SetBasicAuth(pushUser, pushPassword)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// slowClients holds thousands of nearly silent connections.
func slowClients(ctx context.Context, t *trial) error {
	const clients, lasts, mostMemory = 10_000, 20 * time.Second, 768
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	const connections = clients + 500
	if limit.Max < connections+1000 {
		return &skip{fmt.Sprintf("the limit of open files is %d, %d are needed (ulimit -n)", limit.Max, connections+1000)}
	}
	// All have a good credential and the same address, so the bounds must let them in.
	s, err := t.running(ctx, setting{ingest: fmt.Sprintf(", connections: {total: %d, per_address: %d}", connections, connections)})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.steady(ctx); err != nil {
		return err
	}
	slow, stop := context.WithCancel(ctx)
	defer stop()
	var open, made atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() { drip(slow, s.ingest, &open, &made) })
	}
	lacks := func() int64 { return clients*9/10 - open.Load() }
	if err := s.while(ctx, "the slow clients are connected", lacks, func() bool { return lacks() < 0 }); err != nil {
		return err
	}
	// How long that takes depends on the machine, which sends the slow clients' bytes too.
	began, taken := time.Now(), s.sim.Counts().Acknowledged
	if err := s.waitAcknowledged(ctx, taken+uint64(lasts.Seconds()*t.rate)); err != nil {
		return fmt.Errorf("slow clients keep others out: %w", err)
	}
	rate := float64(s.sim.Counts().Acknowledged-taken) / time.Since(began).Seconds()
	memory := s.relay.peakMemory()
	t.row.rounds = 1
	t.remark("%d connections at the end, %d made in all; meanwhile %.0f events/s acknowledged to others; peak RSS %d MiB", open.Load(), made.Load(), rate, memory)
	stop()
	all.Wait()
	if memory > mostMemory {
		return fmt.Errorf("the slow clients cost %d MiB, more than %d", memory, mostMemory)
	}
	return s.settle(ctx)
}

// drip sends a push one byte a second, and starts again when it is cut off.
func drip(ctx context.Context, address string, open, made *atomic.Int64) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	for ctx.Err() == nil {
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		open.Add(1)
		made.Add(1)
		_, err = fmt.Fprintf(c, "POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dG9ydHVyZTp0b3J0dXJlLWhhcy1hLXBhc3N3b3Jk\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
		for err == nil && ctx.Err() == nil {
			_, err = c.Write([]byte{' '})
			time.Sleep(time.Second)
		}
		_ = c.Close()
		open.Add(-1)
	}
}

// giants pushes bodies of the greatest size, all at once. A refusal by 429 or 503 is no
// fault; every acknowledged event must arrive.
func giants(ctx context.Context, t *trial) error {
	const clients, mostMemory = 200, 1536
	s, err := t.running(ctx, setting{rate: 100})
	if err != nil {
		return err
	}
	defer s.close()
	ledgers := make([]workspacesim.Ledger, clients)
	codes := make([]int, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			body, size, ledger := giant(i)
			codes[i], _ = s.pushBody(ctx, body, size)
			if codes[i]/100 == 2 {
				ledgers[i] = ledger
			}
		})
	}
	all.Wait()
	tally := map[int]int{}
	for i, code := range codes {
		tally[code]++
		if ledgers[i].Prefix != "" {
			s.ledgers = append(s.ledgers, ledgers[i])
		}
	}
	memory := s.relay.peakMemory()
	t.row.rounds = 1
	t.remark("answers by status (0: cut off): %v; peak RSS %d MiB", tally, memory)
	if tally[http.StatusNoContent] == 0 {
		return fmt.Errorf("none of the pushes was taken: %v", tally)
	}
	if memory > mostMemory {
		return fmt.Errorf("the pushes cost %d MiB, more than %d", memory, mostMemory)
	}
	return s.settle(ctx)
}

// giant is a push of just under 10 MiB, generated as it is read.
func giant(client int) (body io.Reader, size int64, ledger workspacesim.Ledger) {
	const events, line = 40, 255 << 10
	prefix := fmt.Sprintf("event-log-giant%d-", client)
	filler := strings.Repeat("x", line)
	var parts []io.Reader
	add := func(text string) {
		parts = append(parts, strings.NewReader(text))
		size += int64(len(text))
	}
	for n := range uint64(events) {
		head := `"],`
		if n == 0 {
			head = `{"streams":[{"stream":{"a":"b"},"values":[`
		}
		add(fmt.Sprintf(`%s["%d","{\"event_id\":\"%s\",\"x\":\"`, head, time.Now().UnixNano(), workspacesim.EventID(prefix, n)))
		add(filler)
		add(`\"}`)
	}
	add(`"]]}]}`)
	ledger = workspacesim.Ledger{Prefix: prefix, Acknowledged: []workspacesim.Range{{From: 0, To: events}}}
	ledger.Counts.Acknowledged = events
	return io.MultiReader(parts...), size, ledger
}
