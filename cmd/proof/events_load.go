package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/relay"
)

// The pushes are large, over several connections at once. The last hundredth of the events
// comes in small pushes, one after the other: each of these is a commit with a hash of every
// event, while of the others only the whole record is hashed.
const (
	eventsPerPush, pushers = 1000, 8
	eventsPerSmallPush     = 100
)

// firstSmall is the first event in a small push.
func firstSmall(events int) int { return events - events/100 }

// idPrefix is how the events' ids begin, and idDigits is how many digits follow.
const (
	idPrefix = "event-log-proof-journal-"
	idDigits = 10
)

func eventID(i int) string { return fmt.Sprintf("%s%0*d", idPrefix, idDigits, i) }

// load pushes all events, and waits for the acknowledgements.
func (j *journal) load() (string, error) {
	p := &pusher{url: "http://" + j.relay.Ingest + "/loki/api/v1/push", client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: pushers}, Timeout: time.Minute,
	}}
	defer p.client.CloseIdleConnections()
	large, start := firstSmall(j.events), time.Now()
	if err := p.pushAll(j.ctx, 0, large, eventsPerPush, pushers); err != nil {
		return "", err
	}
	took := time.Since(start)
	err := p.pushAll(j.ctx, large, j.events, eventsPerSmallPush, 1)
	j.last = time.Now()
	return fmt.Sprintf("%d acknowledged, %d a push over %d connections, in %v: %.0f events/s; then %d, %d a push over one, in %v",
		large, eventsPerPush, pushers, took.Round(time.Millisecond), float64(large)/took.Seconds(),
		j.events-large, eventsPerSmallPush, (j.last.Sub(start) - took).Round(time.Millisecond)), err
}

// pusher pushes events in Loki's JSON form.
type pusher struct {
	url    string
	client *http.Client
}

// pushAll pushes the events from first up to end, over this many connections.
func (p *pusher) pushAll(ctx context.Context, first, end, perPush, connections int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pushes atomic.Int64
	var pushing sync.WaitGroup
	for range connections {
		pushing.Go(func() {
			for ctx.Err() == nil {
				from := first + int(pushes.Add(1)-1)*perPush
				if from >= end {
					return
				}
				if err := p.push(ctx, from, min(from+perPush, end)); err != nil {
					cancel(err)
				}
			}
		})
	}
	pushing.Wait()
	return context.Cause(ctx)
}

// push pushes until the relay acknowledges. It ends if the relay refuses for good.
func (p *pusher) push(ctx context.Context, from, end int) error {
	body, err := pushBody(from, end)
	if err != nil {
		return err
	}
	const most, rest = 600, 100 * time.Millisecond
	for tries := 1; ; tries++ {
		status, err := p.try(ctx, body)
		switch {
		case err == nil && status/100 == 2:
			return nil
		case tries == most || ctx.Err() != nil || err == nil && status/100 == 4 && status != http.StatusTooManyRequests:
			return fmt.Errorf("push the events from %d on: the relay answers %d: %w", from, status, err)
		}
		if err := retry.Sleep(ctx, rest); err != nil {
			return err
		}
	}
}

func (p *pusher) try(ctx context.Context, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func pushBody(from, end int) ([]byte, error) {
	s := pushes.Stream{Labels: []relay.Label{{Name: "app", Value: "proof"}}}
	now := time.Now().UnixNano()
	for i := from; i < end; i++ {
		line := fmt.Appendf(nil, `{"event_id":"%s","action":"sessions.authenticate","status":"success"}`, eventID(i))
		s.Entries = append(s.Entries, pushes.Entry{Time: now + int64(i-from), Line: line})
	}
	return pushes.Loki(nil, []pushes.Stream{s})
}
