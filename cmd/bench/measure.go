package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

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
	share   float64 // of the first row's rate, offered in place of the most
	rate    float64 // events a second that follow from share
	sinks   int     // Kafka sinks; 0 is 1
	backlog bool    // the sinks are away until all is pushed
	versus  bool    // a peer is measured beside it
	peer    bool    // it is the peer
}

// result is what was measured.
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
	beside              writer // what the disk gave meanwhile to one who writes a record now and then
}

// bench runs rows one after the other.
type bench struct {
	flags
	dir   string
	first result // of the first row
}

// measure runs one row on a subject and a broker of its own.
func (b *bench) measure(ctx context.Context, r row, dir string) (result, error) {
	l, err := makeLoad(r)
	if err != nil {
		return result{}, err
	}
	kafka, err := readback.StartKafka("", topic(0))
	if err != nil {
		return result{}, err
	}
	defer kafka.Close()
	if err := kafka.Create(ctx); err != nil {
		return result{}, err
	}
	broker := kafka.Brokers[0]
	if r.backlog {
		broker = "127.0.0.1:1" // nothing listens there
	}
	s, err := b.start(ctx, r, dir, broker)
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
	if r.backlog { // the broker comes back: what counts is how fast the rest goes out
		if err := s.process.Stop(startWithin); err != nil {
			return result{}, err
		}
		before, start = usage{}, time.Now()
		next, err := s.again(ctx, kafka.Brokers[0])
		if err != nil {
			return result{}, err
		}
		s = next
	}
	var last time.Time
	for sink := range max(1, r.sinks) {
		if last, err = waitDelivered(ctx, kafka.On(topic(sink)), int64(r.events)); err != nil {
			return result{}, fmt.Errorf("%w\n%s", err, s.process.Tail())
		}
	}
	after, err := s.usage(ctx)
	if err != nil {
		return result{}, err
	}
	res.accepted = float64(r.events) / o.lastAck.Sub(o.start).Seconds()
	res.delivered = float64(r.events) / last.Sub(start).Seconds()
	res.p50, res.p99 = o.quantile(0.5), o.quantile(0.99)
	res.used(before, after)
	return res, res.count(ctx, kafka, r, o)
}

// used sets what a row has cost.
func (r *result) used(before, after usage) {
	n := float64(r.events)
	r.cpuPerMillion, r.rss = (after.cpu-before.cpu)/n*1e6, after.rss
	r.diskPerEvent, r.commitsPerEvent = (after.written-before.written)/n, after.commits/n
	if after.commits > 0 {
		r.recordBytes = int(after.stored / after.commits)
	}
}

func (b *bench) start(ctx context.Context, r row, dir, broker string) (*subject, error) {
	if r.peer {
		return startCollector(ctx, b.peer, dir, broker)
	}
	return startRelay(ctx, b.binary, dir, broker, max(1, r.sinks))
}

// writeBeside writes, while a row is offered that has a rate, a record as large
// as a push of it takes on the disk now and then. The returned function ends that.
func (b *bench) writeBeside(ctx context.Context, r row) func() (writer, error) {
	if r.rate == 0 {
		return func() (writer, error) { return writer{}, nil }
	}
	ctx, stop := context.WithCancel(ctx)
	var w writer
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		w, err = write(ctx, b.dir, int(float64(r.batch)*b.first.diskPerEvent), 5*time.Millisecond)
	}()
	return func() (writer, error) {
		stop()
		<-done
		return w, err
	}
}

// waitDelivered waits until the broker has n records, and returns when it had.
func waitDelivered(ctx context.Context, kafka *readback.Kafka, n int64) (time.Time, error) {
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); {
		have, err := kafka.Count(ctx)
		if err != nil && ctx.Err() != nil {
			return time.Time{}, err
		}
		if have >= n {
			return time.Now(), nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Time{}, errors.New("the destination does not get what was acknowledged")
}

// count reads the first sink's topic back.
func (r *result) count(ctx context.Context, kafka *readback.Kafka, w row, o *outcome) error {
	var tally workspacesim.Tally
	if err := kafka.Read(ctx, func(id string, body []byte) { tally.Add(cmp.Or(id, idIn(body))) }); err != nil {
		return fmt.Errorf("read the destination back: %w", err)
	}
	ledger := workspacesim.Ledger{Prefix: idPrefix}
	for p, ok := range o.acked {
		if ok {
			from := p * w.batch
			ledger.Acknowledged = append(ledger.Acknowledged, workspacesim.Range{From: uint64(from), To: uint64(min(from+w.batch, w.events))})
		}
	}
	r.lost, r.duplicates = tally.Missing([]workspacesim.Ledger{ledger}), tally.Duplicates
	return nil
}

// idIn finds an event's id in its body, which may be a JSON string by now: a
// peer does not put it into a header.
func idIn(body []byte) string {
	from := bytes.Index(body, []byte(idPrefix))
	if from < 0 {
		return ""
	}
	to := bytes.IndexAny(body[from:], `"\\`)
	return string(body[from : from+max(0, to)])
}

// idle looks at a relay that has nothing to do.
func (b *bench) idle(ctx context.Context, dir string, d time.Duration) (string, error) {
	kafka, err := readback.StartKafka("", topic(0))
	if err != nil {
		return "", err
	}
	defer kafka.Close()
	relay, err := startRelay(ctx, b.binary, dir, kafka.Brokers[0], 1)
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

// writer is what the disk gives to one that does nothing else.
type writer struct {
	bytesPerSecond float64
	p99            float64 // ms that a write and its fsync take
	recordBytes    int
}

// write appends records of the given size to a file, each fsynced, with a pause
// behind each, until ctx ends.
func write(ctx context.Context, dir string, recordBytes int, pause time.Duration) (writer, error) {
	recordBytes = max(recordBytes, 512)
	f, err := os.CreateTemp(dir, "bare")
	if err != nil {
		return writer{}, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	record := make([]byte, recordBytes)
	var o outcome
	start := time.Now()
	for ctx.Err() == nil {
		begun := time.Now()
		if _, err := f.Write(record); err != nil {
			return writer{}, err
		}
		if err := f.Sync(); err != nil {
			return writer{}, err
		}
		o.latencies = append(o.latencies, time.Since(begun))
		sleepUntil(time.Now().Add(pause))
	}
	slices.Sort(o.latencies)
	return writer{
		bytesPerSecond: float64(len(o.latencies)*recordBytes) / time.Since(start).Seconds(),
		p99:            o.quantile(0.99), recordBytes: recordBytes,
	}, nil
}
