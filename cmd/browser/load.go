package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/relay"
)

// The load is so many pushes a second of so many events each.
const pushesPerSecond, eventsPerPush = 50, 100

// loaded is what a relay did under load.
type loaded struct {
	pushed, delivered float64 // events a second
	cpu               float64 // seconds of CPU that it took for a million events
	unsure            float64 // by so much at most, since the kernel counts in ticks
	slow              time.Duration
}

// tick is the unit of the kernel's account of a process, in seconds.
const tick = 0.01

// compareLoads has a relay take the same load without pages that follow its events, and with four. All
// is delivered, and the relay's work may not double. The browser has its part of the same machine, and so
// the rates are only printed.
func compareLoads(ctx context.Context, b *chrome, o options, dir string, r *report) error {
	s := &stage{binary: o.binary}
	var err error
	if s.relay, err = rig.NewRelay(ctx, o.binary, filepath.Join(dir, "load")); err != nil {
		return err
	}
	defer s.relay.Close()
	free, err := rig.FreeAddresses(ctx, 1)
	if err != nil {
		return err
	}
	s.web = "http://" + free[0]
	if err := s.relay.Start(ctx, s.longConfig(options{environments: 1}), time.Minute); err != nil {
		return err
	}
	r.say("\n%-12s %10s %12s %10s %12s", "live pages", "pushed/s", "delivered/s", "CPU-s/M", "p99 of push")
	var all []loaded
	for _, pages := range []int{0, 4} {
		l, err := s.underLoad(ctx, b, o.load, pages)
		if err != nil {
			return fmt.Errorf("with %d live pages: %w", pages, err)
		}
		r.say("%-12d %10.0f %12.0f %10.1f %9.1f ms", pages, l.pushed, l.delivered, l.cpu, float64(l.slow.Microseconds())/1000)
		all = append(all, l)
	}
	if least, most := all[1].cpu-all[1].unsure, 2*(all[0].cpu+all[0].unsure); least > most {
		r.fail("a million events take %.1f s of the relay's CPU while pages follow them, more than %.1f", least, most)
	}
	return nil
}

// underLoad measures a relay that some pages follow.
func (s *stage) underLoad(ctx context.Context, b *chrome, length time.Duration, pages int) (l loaded, err error) {
	if err := s.pushLoad(ctx, 1, fmt.Sprint("first-", pages), func(time.Duration) {}); err != nil { // there is something to see
		return l, err
	}
	for range pages {
		t, err := b.enter(s, light)
		if err != nil {
			return l, err
		}
		defer t.close()
		if err := t.goTo(s.web + "/live"); err != nil {
			return l, err
		}
		if err := t.until("events are shown", `document.querySelectorAll("main article").length > 0`); err != nil {
			return l, err
		}
	}
	before, spent, began := s.delivered(ctx), s.cpuSeconds(ctx), time.Now()
	var mu sync.Mutex
	var latencies []time.Duration
	n := max(1, int(length.Seconds()*pushesPerSecond))
	err = s.pushLoad(ctx, n, fmt.Sprint("load-", pages), func(took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		latencies = append(latencies, took)
	})
	if err != nil {
		return l, err
	}
	events := float64(n * eventsPerPush)
	l.pushed = events / time.Since(began).Seconds()
	err = rig.Until(ctx, time.Minute, "all is delivered", func() bool { return s.delivered(ctx)-before >= int64(events) }, s.relay.Process())
	l.delivered, l.cpu, l.unsure = events/time.Since(began).Seconds(), 1e6*(s.cpuSeconds(ctx)-spent)/events, 1e6*tick/events
	slices.Sort(latencies)
	l.slow = latencies[len(latencies)*99/100]
	return l, err
}

// pushLoad begins each push when it is due, however long those before it take. done is told how long
// after that each was acknowledged.
func (s *stage) pushLoad(ctx context.Context, n int, name string, done func(time.Duration)) error {
	began := time.Now()
	var pushing sync.WaitGroup
	var once sync.Once
	var failed error
	for i := range n {
		due := began.Add(time.Duration(i) * time.Second / pushesPerSecond)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pushing.Go(func() {
			entries := make([]pushes.Entry, eventsPerPush)
			for j := range entries {
				line := fmt.Appendf(nil, `{"event_id":"%s-%d-%d","action":"LOGIN","status":"success","note":"%s"}`, name, i, j, strings.Repeat("x", 500))
				entries[j] = pushes.Entry{Time: time.Now().UnixNano(), Line: line}
			}
			err := s.push(ctx, entries)
			for errors.Is(err, errBusy) && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond) // as senders do
				err = s.push(ctx, entries)
			}
			if err != nil {
				once.Do(func() { failed = err })
			}
			done(time.Since(due))
		})
	}
	pushing.Wait()
	return failed
}

// errBusy is the relay's wish to be asked again.
var errBusy = errors.New("the relay takes no more at once")

// push pushes events of the environment that pushes without a credential.
func (s *stage) push(ctx context.Context, entries []pushes.Entry) error {
	body, err := pushes.Loki(nil, []pushes.Stream{{Labels: []relay.Label{{Name: "app", Value: hostile}}, Entries: entries}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.relay.Ingest+"/loki/api/v1/push", strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusTooManyRequests {
		return errBusy
	}
	if resp.StatusCode != http.StatusNoContent {
		why, _ := io.ReadAll(resp.Body) // for the error
		return fmt.Errorf("a push was answered with %s: %s", resp.Status, why)
	}
	return nil
}

// delivered is how many events the first sink has acknowledged; 0 while the relay does not answer.
func (s *stage) delivered(ctx context.Context) int64 {
	sinks, err := s.client().Sinks(ctx)
	if err != nil || len(sinks) == 0 || sinks[0].Delivery == nil {
		return 0
	}
	return sinks[0].Events
}

// cpuSeconds is what the relay's process has spent.
func (s *stage) cpuSeconds(ctx context.Context) (seconds float64) {
	_, text, _ := s.relay.Ask(ctx, "/metrics") // without an answer it is 0
	for line := range strings.Lines(text) {
		if number, is := strings.CutPrefix(line, "process_cpu_seconds_total "); is {
			seconds, _ = strconv.ParseFloat(strings.TrimSpace(number), 64) // likewise
		}
	}
	return seconds
}
