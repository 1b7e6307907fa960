package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// session is one call of the command. It is for one goroutine.
type session struct {
	flags
	dir  string // of its own
	out  io.Writer
	rows []row
	// nats is started when it is first needed: two destinations share it.
	nats    *natstest.Cluster
	kafka   *kafkatest.Cluster // likewise
	closers []func()
}

// close ends running processes, the newest first.
func (s *session) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// playAll starts the destinations and plays all runs.
func (s *session) playAll(ctx context.Context, chosen []destination) {
	var sinks, journals, ordeals []*place
	for _, d := range chosen {
		p := s.startPlace(ctx, d)
		switch {
		case p == nil:
		case p.ordeal != nil:
			ordeals = append(ordeals, p)
		case p.journal != nil:
			journals = append(journals, p)
		default:
			sinks = append(sinks, p)
		}
	}
	// All sinks have one relay, since a node lost at one must not affect another. Each journal
	// has a relay of its own.
	s.playTwice(ctx, sinks)
	for _, p := range journals {
		s.playTwice(ctx, []*place{p})
	}
	for _, p := range ordeals {
		if ctx.Err() == nil && p.ordeal.times > 0 {
			s.rows = append(s.rows, s.play(ctx, []*place{p}, p.ordeal.times)...)
		}
	}
}

// playTwice plays the places while all goes well, and then with kills where
// one of them has nodes.
func (s *session) playTwice(ctx context.Context, places []*place) {
	if len(places) == 0 || ctx.Err() != nil {
		return
	}
	s.rows = append(s.rows, s.play(ctx, places, 0)...)
	mortal := slices.ContainsFunc(places, func(p *place) bool { return p.outage != nil })
	if s.kills > 0 && mortal && ctx.Err() == nil {
		s.rows = append(s.rows, s.play(ctx, places, s.kills)...)
	}
}

// startPlace starts a destination; it returns nil if it is not available.
func (s *session) startPlace(ctx context.Context, d destination) *place {
	if ctx.Err() != nil {
		return nil
	}
	s.say("%s: %s …", d.name, d.about)
	start := time.Now()
	p, err := d.start(ctx, s)
	var skipped *skip
	switch {
	case errors.As(err, &skipped):
		s.say("SKIPPED %s: %s", d.name, skipped.reason)
		s.rows = append(s.rows, row{name: d.name, skipped: firstLine(skipped.reason)})
		return nil
	case err != nil:
		s.say("WRONG %s: %v", d.name, err)
		s.rows = append(s.rows, row{name: d.name, run: "start", wrong: []string{err.Error()}, took: time.Since(start)})
		return nil
	}
	s.say("  ready after %.0fs", time.Since(start).Seconds())
	if p.close != nil {
		s.closers = append(s.closers, p.close)
	}
	return p
}

// folder is a path under the session's own folder.
func (s *session) folder(name string) string { return filepath.Join(s.dir, name) }
