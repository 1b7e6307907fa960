package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// row is one thing to measure.
type row struct {
	name    string
	format  string // json, proto or datadog
	batch   int    // events a push
	conns   int
	events  int
	share   float64 // of the first row's rate, offered instead of as much as possible
	rate    float64 // events a second, by share
	sinks   int     // Kafka sinks; 0 is 1
	mode    string  // of the Kafka sinks; empty is their default
	file    bool    // one file sink instead of Kafka, nearly free
	binary  string  // the relay's, if not the one of all rows
	backlog bool    // the sinks are away until all is pushed
	versus  bool    // a peer is measured as well
	peer    bool    // it is the peer
}

// result is one row's measurements.
type result struct {
	row
	accepted, delivered float64 // events a second
	eventBytes          float64
	cpuPerMillion       float64 // seconds of CPU of the relay for a million events
	p50, p99            float64 // ms from a push to its acknowledgement
	rss                 float64 // MB at the peak
	diskPerEvent        float64 // bytes written
	commitsPerEvent     float64 // each is one fsync of the journal
	recordBytes         int     // mean size of a commit
	lost, duplicates    int64
	beside              writer // the disk's rate for an occasional record at the same time
}

// bench runs rows one after the other.
type bench struct {
	flags
	dir   string
	first result // of the first row
}

// measure runs one row on a relay, or a peer, and on destinations of its own.
func (b *bench) measure(ctx context.Context, r row, dir string) (result, error) {
	l, err := makeLoad(r)
	if err != nil {
		return result{}, err
	}
	d, err := r.open(ctx, dir)
	if err != nil {
		return result{}, err
	}
	defer d.close()
	s, err := b.start(ctx, r, dir, d)
	if err != nil {
		return result{}, err
	}
	defer func() { s.process.Kill() }()
	before, err := s.usage(ctx)
	if err != nil {
		return result{}, err
	}
	end := b.writeBeside(ctx, r)
	o, err := l.push(ctx, s.address(r.format), r.conns, r.rate)
	beside, besideErr := end()
	if err := cmp.Or(err, besideErr); err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, s.process.Tail())
	}
	res, start := result{row: r, eventBytes: l.eventBytes, beside: beside}, o.start
	if r.backlog { // the broker comes back: the rate of the rest counts
		if err := s.process.Stop(startWithin); err != nil {
			return result{}, err
		}
		before, start = usage{}, time.Now()
		next, err := s.again(ctx, d.sinks)
		if err != nil {
			return result{}, err
		}
		s = next
	}
	last, err := d.wait(ctx, int64(r.events))
	if err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, s.process.Tail())
	}
	after, err := s.usage(ctx)
	if err != nil {
		return result{}, err
	}
	res.accepted = float64(r.events) / o.lastAck.Sub(o.start).Seconds()
	res.delivered = float64(r.events) / last.Sub(start).Seconds()
	res.p50, res.p99 = o.quantile(0.5), o.quantile(0.99)
	res.used(before, after)
	return res, res.count(ctx, d.all[0], o)
}

// used sets a row's cost.
func (r *result) used(before, after usage) {
	n := float64(r.events)
	r.cpuPerMillion, r.rss = (after.cpu-before.cpu)/n*1e6, after.rss
	r.diskPerEvent, r.commitsPerEvent = (after.written-before.written)/n, after.commits/n
	if after.commits > 0 {
		r.recordBytes = int(after.stored / after.commits)
	}
}

func (b *bench) start(ctx context.Context, r row, dir string, d *destinations) (*subject, error) {
	if r.peer {
		return startCollector(ctx, b.peer, dir, d.broker)
	}
	sinks := d.sinks
	if r.backlog {
		sinks = r.kafkaSinks(away)
	}
	return startRelay(ctx, cmp.Or(r.binary, b.binary), dir, sinks)
}

// count reads the first destination back.
func (r *result) count(ctx context.Context, d readback.Destination, o *outcome) error {
	var tally workspacesim.Tally
	if err := d.Read(ctx, func(id string, body []byte) { tally.Add(cmp.Or(id, idIn(body))) }); err != nil {
		return fmt.Errorf("read the destination back: %w", err)
	}
	ledger := workspacesim.Ledger{Prefix: idPrefix}
	for p, ok := range o.acked {
		if ok {
			from := p * r.batch
			ledger.Acknowledged = append(ledger.Acknowledged, workspacesim.Range{From: uint64(from), To: uint64(min(from+r.batch, r.events))})
		}
	}
	r.lost, r.duplicates = tally.Missing([]workspacesim.Ledger{ledger}), tally.Duplicates
	return nil
}

// idIn finds an event's id in its body, since a peer puts it into no header. The body may be a
// JSON string by now.
func idIn(body []byte) string {
	from := bytes.Index(body, []byte(idPrefix))
	if from < 0 {
		return ""
	}
	to := bytes.IndexAny(body[from:], `"\\`)
	return string(body[from : from+max(0, to)])
}

// idle measures an idle relay.
func (b *bench) idle(ctx context.Context, dir string, d time.Duration) (string, error) {
	kafka, err := kafkatest.StartStandIn(nil)
	if err != nil {
		return "", err
	}
	defer kafka.Close()
	relay, err := startRelay(ctx, b.binary, dir, row{}.kafkaSinks(kafka.Brokers[0]))
	if err != nil {
		return "", err
	}
	defer relay.process.Kill()
	before, err := relay.usage(ctx)
	if err != nil {
		return "", err
	}
	time.Sleep(d)
	after, err := relay.usage(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("idle for %s: %.2f%% of a core, %.0f MB", d, (after.cpu-before.cpu)/d.Seconds()*100, after.rss), nil
}
