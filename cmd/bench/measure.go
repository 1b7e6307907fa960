package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/readback"
	"github.com/auditrelay/auditrelay/internal/workspacesim"
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
}

// bench runs rows one after the other.
type bench struct {
	flags
	dir  string
	best float64 // events a second accepted in the first row
}

// measure runs one row on a relay and a broker of its own.
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
	broker := kafka.Brokers[0]
	if r.backlog {
		broker = "127.0.0.1:1" // nothing listens there
	}
	relay, err := startRelay(ctx, b.binary, dir, broker, max(1, r.sinks))
	if err != nil {
		return result{}, err
	}
	defer relay.kill()
	before, err := relay.usage()
	if err != nil {
		return result{}, err
	}
	o, err := l.push(ctx, relay.ingest, r.conns, r.rate)
	if err != nil {
		return result{}, err
	}
	start := o.start
	if r.backlog { // the broker comes back: what counts is how fast the rest goes out
		if relay, start, err = b.restart(ctx, relay, dir, kafka.Brokers[0]); err != nil {
			return result{}, err
		}
		defer relay.kill()
	}
	var last time.Time
	for sink := range max(1, r.sinks) {
		if last, err = waitDelivered(ctx, kafka.On(topic(sink)), int64(r.events)); err != nil {
			return result{}, err
		}
	}
	after, err := relay.usage()
	if err != nil {
		return result{}, err
	}
	n := float64(r.events)
	res := result{
		row: r, eventBytes: l.eventBytes,
		accepted:      n / o.lastAck.Sub(o.start).Seconds(),
		delivered:     n / last.Sub(start).Seconds(),
		cpuPerMillion: (after.cpu - before.cpu) / n * 1e6, rss: after.rss,
		p50: o.quantile(0.5), p99: o.quantile(0.99),
		diskPerEvent: (after.written - before.written) / n, commitsPerEvent: after.commits / n,
	}
	if after.commits > 0 {
		res.recordBytes = int(after.stored / after.commits)
	}
	return res, res.count(ctx, kafka, r, o)
}

// restart ends the relay and starts it again on its data, with the broker there.
func (b *bench) restart(ctx context.Context, relay *relayProcess, dir, broker string) (*relayProcess, time.Time, error) {
	if err := relay.stop(); err != nil {
		return nil, time.Time{}, err
	}
	start := time.Now()
	next, err := startRelay(ctx, b.binary, dir, broker, 1)
	return next, start, err
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
	if err := kafka.Read(ctx, func(id string, _ []byte) { tally.Add(id) }); err != nil {
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
	defer relay.kill()
	before, err := relay.usage()
	if err != nil {
		return "", err
	}
	time.Sleep(d)
	after, err := relay.usage()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("idle for %s: %.2f%% of a core, %.0f MB", d, (after.cpu-before.cpu)/d.Seconds()*100, after.rss), nil
}

// limit is what the disk gives to a writer that does nothing else.
type limit struct {
	bytesPerSecond float64
	p99            time.Duration
	recordBytes    int
}

// bareWriter appends records of the given size to a file, each fsynced, for d.
func bareWriter(dir string, recordBytes int, d time.Duration) (limit, error) {
	recordBytes = max(recordBytes, 512)
	f, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return limit{}, err
	}
	defer func() { _ = f.Close() }()
	record := make([]byte, recordBytes)
	var times []time.Duration
	start := time.Now()
	for time.Since(start) < d {
		begun := time.Now()
		if _, err := f.Write(record); err != nil {
			return limit{}, err
		}
		if err := f.Sync(); err != nil {
			return limit{}, err
		}
		times = append(times, time.Since(begun))
	}
	o := outcome{latencies: sorted(times)}
	return limit{
		bytesPerSecond: float64(len(times)*recordBytes) / time.Since(start).Seconds(),
		p99:            time.Duration(o.quantile(0.99) * float64(time.Millisecond)), recordBytes: recordBytes,
	}, nil
}

func (l limit) describe(r result) string {
	return fmt.Sprintf("limit: a bare writer that fsyncs each record of %d bytes writes %.1f MB/s with a p99 of %.2f ms; %s wrote %.1f MB/s, %.0f%% of that",
		l.recordBytes, l.bytesPerSecond/1e6, l.p99.Seconds()*1e3, r.name, r.accepted*r.diskPerEvent/1e6, r.accepted*r.diskPerEvent/l.bytesPerSecond*100)
}
