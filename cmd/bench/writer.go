package main

import (
	"context"
	"os"
	"slices"
	"time"
)

// writer is the disk's rate for a bare writer.
type writer struct {
	bytesPerSecond float64
	p99            float64 // ms of a write and its fsync
	recordBytes    int
}

// write appends records of the given size to a file until ctx ends. It syncs each
// record and pauses after it.
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

// writeBeside writes and syncs a record every 5 ms while a row with a rate is measured. The
// record is as large as a push of the row on the disk. The returned function ends the writing.
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
