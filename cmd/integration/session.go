package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/realservers"
)

// session is one call of the command. It is for one goroutine.
type session struct {
	flags
	dir  string // of its own
	out  io.Writer
	rows []row
	// nats is started when it is first needed: two destinations share it.
	nats    *realservers.NATS
	closers []func()
}

// close ends what runs, the newest first.
func (s *session) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// playAll starts the destinations and plays all runs.
func (s *session) playAll(ctx context.Context, chosen []destination) {
	var sinks, journals []*place
	for _, d := range chosen {
		p := s.startPlace(ctx, d)
		switch {
		case p == nil:
		case p.journal != nil:
			journals = append(journals, p)
		default:
			sinks = append(sinks, p)
		}
	}
	// All sinks have one relay: a node that is gone at one must not cost
	// another anything. A journal is a relay's own.
	for _, kills := range []int{0, s.kills} {
		if len(sinks) > 0 && ctx.Err() == nil {
			s.rows = append(s.rows, s.play(ctx, sinks, kills)...)
		}
	}
	for _, p := range journals {
		for _, kills := range []int{0, s.kills} {
			if ctx.Err() == nil {
				s.rows = append(s.rows, s.play(ctx, []*place{p}, kills)...)
			}
		}
	}
}

// startPlace starts a destination; nil stands for one that cannot be had.
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
