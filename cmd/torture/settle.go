package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// settle lets the simulator push the rest, waits until every destination has it,
// counts, and stops the relay; it must end cleanly.
func (s *scene) settle(ctx context.Context) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	if _, err := s.count(ctx, nil); err != nil {
		return err
	}
	s.peak = s.relay.peakMemory()
	return s.relay.stop()
}

// quiet ends the load, and returns when all of it was answered.
func (s *scene) quiet(ctx context.Context) error {
	s.sim.Pause()
	left := func() int64 { return int64(s.sim.Counts().InFlight) }
	return s.while(ctx, "all events of the workspace are answered", left, func() bool { return left() == 0 })
}

// count reads the destinations back into the row. Events with the excused ids
// may be missing: it gives how many of them are, by destination.
func (s *scene) count(ctx context.Context, excused []string) (excuses map[string]int64, err error) {
	ledgers := append(s.sim.Ledgers(), s.ledgers...)
	for _, l := range ledgers {
		s.t.row.acknowledged += l.Counts.Acknowledged
	}
	excused = acknowledgedOf(excused, ledgers)
	arrivals, err := s.readAll(ctx, ledgers, excused)
	if err != nil {
		return nil, err
	}
	excuses = map[string]int64{}
	fewest := int64(-1)
	var again []string
	for i, d := range s.destinations() {
		a := &arrivals[i]
		if a.lost > 0 {
			s.t.row.lost += a.lost
			s.t.remark("%d lost at %s", a.lost, d.Name())
		}
		excuses[d.Name()] = a.excused
		s.t.row.duplicates += a.Duplicates
		if a.Duplicates > 0 {
			again = append(again, fmt.Sprintf("%s %d", d.Name(), a.Duplicates))
		}
		if fewest < 0 || a.Unique < fewest {
			fewest = a.Unique
		}
	}
	s.t.row.delivered += fewest
	if again != nil {
		s.t.remark("duplicates: %s", strings.Join(again, ", "))
	}
	return excuses, nil
}

// readAll reads all destinations at the same time; the answers are in their order.
func (s *scene) readAll(ctx context.Context, ledgers []workspacesim.Ledger, excused []string) ([]arrival, error) {
	all := s.destinations()
	arrivals, errs := make([]arrival, len(all)), make([]error, len(all))
	var reading sync.WaitGroup
	for i, d := range all {
		reading.Go(func() {
			if arrivals[i], errs[i] = arrived(ctx, d, ledgers, excused); errs[i] != nil {
				errs[i] = fmt.Errorf("read %s back: %w", d.Name(), errs[i])
			}
		})
	}
	reading.Wait()
	return arrivals, errors.Join(errs...)
}

// arrival is one reading of a destination.
type arrival struct {
	workspacesim.Tally
	lost    int64 // acknowledged, missing, and without an excuse
	excused int64 // acknowledged, missing, and with one
}

// patience is how long nothing may move. No wait fails because of its length alone, since that
// says more about the machine than about the relay.
const patience = waiting.Stall

// arrived reads a destination until no acknowledged event is missing, or nothing new has come
// for patience; then it names the missing ones. A reading that has begun is never cut short,
// since what was not read would be taken for lost.
func arrived(ctx context.Context, d readback.Destination, ledgers []workspacesim.Ledger, excused []string) (arrival, error) {
	most, moved := int64(-1), time.Now()
	for {
		var a arrival
		err := d.Read(ctx, func(id string, _ []byte) { a.Add(id) })
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) && !strings.Contains(err.Error(), "unknown topic") {
			return a, err
		}
		if a.Unique > most {
			most, moved = a.Unique, time.Now()
		}
		a.excuse(excused)
		if a.lost = a.Missing(ledgers); err == nil && a.lost == 0 || time.Since(moved) > patience {
			return a, nil
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// excuse takes missing ids for seen, and counts them.
func (a *arrival) excuse(ids []string) {
	unique, duplicates := a.Unique, a.Duplicates
	for _, id := range ids {
		a.Add(id)
	}
	a.excused = a.Unique - unique
	a.Unique, a.Duplicates = unique, duplicates
}

// acknowledgedOf returns the acknowledged ones among the ids, each once.
func acknowledgedOf(ids []string, ledgers []workspacesim.Ledger) []string {
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool {
		prefix, seq, _ := workspacesim.ParseEventID(id)
		for _, l := range ledgers {
			if l.Prefix != prefix {
				continue
			}
			i := sort.Search(len(l.Acknowledged), func(i int) bool { return l.Acknowledged[i].To > seq })
			return i == len(l.Acknowledged) || l.Acknowledged[i].From > seq
		}
		return true
	})
}
