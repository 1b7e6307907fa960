package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/relay"
)

// load pushes events to all relays in turn, as through a load balancer: a relay that refuses or
// does not answer is left out for a moment, and the push goes to the next one, until it is
// taken. It is left out for the environment alone, since a relay that refuses one may take others.
type load struct {
	client *http.Client
	relays []string // HOST:PORT

	senders []*sender

	mu      sync.Mutex // guards the fields below
	next    int
	out     [][]time.Time // until when each relay is left out, by environment
	takes   []taking      // by environment
	last    time.Time     // the newest 2xx
	gap     time.Duration
	refused map[string]int // by reason
}

// taking is how an environment's pushes are taken.
type taking struct {
	batches int
	last    time.Time     // the newest 2xx
	gap     time.Duration // the longest time without one since watch
}

// sender pushes one batch after the other. What it has acknowledged is everything before next.
type sender struct {
	prefix      string
	environment int

	mu    sync.Mutex // guards the fields below
	next  uint64
	twice []workspacesim.Range // batches that may have been taken more than once
}

const (
	sendersAll  = 32
	batchEvents = 100
	eventFiller = 400 // bytes
	// pushTimeout is a sender's patience, and leftOut how long a relay gets no pushes after it
	// did not answer.
	pushTimeout = 3 * time.Second
	leftOut     = 2 * time.Second
)

// newLoad has senders of each of the environments.
func newLoad(relays []string, environments int) *load {
	l := &load{
		relays: relays, takes: make([]taking, environments), last: time.Now(), refused: map[string]int{},
		client: &http.Client{Timeout: pushTimeout, Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, MaxIdleConnsPerHost: sendersAll,
		}},
	}
	for range environments {
		l.out = append(l.out, make([]time.Time, len(relays)))
	}
	for i := range sendersAll {
		l.senders = append(l.senders, &sender{prefix: fmt.Sprintf("%s%d-", loadPrefix, i), environment: i % environments})
	}
	return l
}

// loadPrefix begins the ids of the load's events, apart from those of the simulated workspace.
const loadPrefix = "event-log-load"

func isLoad(prefix string) bool { return strings.HasPrefix(prefix, loadPrefix) }

// run pushes at a rate, in events a second, until ctx ends.
func (l *load) run(ctx context.Context, rate float64) {
	every := time.Duration(sendersAll * batchEvents / rate * float64(time.Second))
	var all sync.WaitGroup
	for i, s := range l.senders {
		all.Go(func() {
			due := time.Now().Add(every * time.Duration(i) / sendersAll)
			for retry.Sleep(ctx, time.Until(due)) == nil {
				l.push(ctx, s)
				// What was due in an outage is not made up for.
				due = due.Add(every)
				if late := time.Now().Add(-every); due.Before(late) {
					due = late
				}
			}
		})
	}
	all.Wait()
}

// push pushes a batch until a relay has taken it.
func (l *load) push(ctx context.Context, s *sender) {
	body := s.batch()
	unsure := false
	for ctx.Err() == nil {
		i, ok := l.choose(s.environment)
		if !ok {
			_ = retry.Sleep(ctx, 50*time.Millisecond) // the loop ends with ctx
			continue
		}
		reason, perhaps := l.send(ctx, l.relays[i], pushUser(s.environment), body)
		if reason == "" {
			l.taken(s, unsure)
			return
		}
		unsure = unsure || perhaps
		l.leaveOut(s.environment, i, reason)
	}
}

// send is one attempt. Where it failed, perhaps says that the batch may have been taken.
func (l *load) send(ctx context.Context, relay, user string, body []byte) (reason string, perhaps bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+relay+"/loki/api/v1/push", bytes.NewReader(body))
	if err != nil {
		return err.Error(), false
	}
	req.SetBasicAuth(user, pushPassword)
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	var dialled *net.OpError
	switch {
	case errors.As(err, &dialled) && dialled.Op == "dial":
		return "no connection", false
	case err != nil:
		return "no answer", true
	}
	defer func() { _ = resp.Body.Close() }()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	if resp.StatusCode/100 == 2 {
		return "", false
	}
	standsBy := strings.Contains(string(said), "stands by")
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(said))), !standsBy
}

// choose takes the relays in turn, without those that are left out.
func (l *load) choose(environment int) (i int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.relays {
		l.next = (l.next + 1) % len(l.relays)
		if time.Now().After(l.out[environment][l.next]) {
			return l.next, true
		}
	}
	return 0, false
}

func (l *load) leaveOut(environment, i int, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[reason]++
	until := time.Now().Add(leftOut / 8)
	if reason == "no answer" {
		until = time.Now().Add(leftOut)
	}
	l.out[environment][i] = until
}

// taken notes a batch that was acknowledged.
func (l *load) taken(s *sender, unsure bool) {
	s.mu.Lock()
	if unsure {
		s.twice = append(s.twice, workspacesim.Range{From: s.next, To: s.next + batchEvents})
	}
	s.next += batchEvents
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.gap, l.last = max(l.gap, now.Sub(l.last)), now
	t := &l.takes[s.environment]
	*t = taking{t.batches + 1, now, max(t.gap, now.Sub(t.last))}
}

// watch begins to watch how the pushes of each environment are taken.
func (l *load) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.takes {
		l.takes[i] = taking{last: time.Now()}
	}
}

// watched is how they were taken since watch.
func (l *load) watched() (all []taking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.takes {
		t.gap = max(t.gap, time.Since(t.last))
		all = append(all, t)
	}
	return all
}

// quietest is the longest time without a 2xx of any relay since the last call.
func (l *load) quietest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	gap := max(l.gap, time.Since(l.last))
	l.gap = 0
	return gap
}

// acknowledged are the events taken so far.
func (l *load) acknowledged() (all []workspacesim.Ledger, events uint64) {
	for _, s := range l.senders {
		s.mu.Lock()
		ledger := workspacesim.Ledger{Prefix: s.prefix}
		if s.next > 0 {
			ledger.Acknowledged = []workspacesim.Range{{From: 0, To: s.next}}
		}
		events += s.next
		all = append(all, ledger)
		s.mu.Unlock()
	}
	return all, events
}

// repeated reports whether an event's push was repeated after an attempt without a clear
// answer. Such an event may arrive twice: no relay can know that the other one took it.
func (l *load) repeated() map[string][]workspacesim.Range {
	all := map[string][]workspacesim.Range{}
	for _, s := range l.senders {
		s.mu.Lock()
		all[s.prefix] = append([]workspacesim.Range(nil), s.twice...)
		s.mu.Unlock()
	}
	return all
}

var filler = strings.Repeat("session verified by the device trust policy; ", 1+eventFiller/45)[:eventFiller]

// batch is the body of the next push.
func (s *sender) batch() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]pushes.Entry, batchEvents)
	now := time.Now().UnixNano()
	for i := range entries {
		id := workspacesim.EventID(s.prefix, s.next+uint64(i))
		entries[i] = pushes.Entry{Time: now + int64(i), Line: fmt.Appendf(nil,
			`{"event_id":%q,"project_id":"project-live-1","action":"sessions.authenticate","status":"success","request_id":"request-id-%s","note":%q}`, id, id, filler)}
	}
	// It fails for invalid UTF-8 only, which there is none of.
	body, _ := pushes.Loki(nil, []pushes.Stream{{Labels: []relay.Label{{Name: "service", Value: "load"}}, Entries: entries}})
	return body
}
