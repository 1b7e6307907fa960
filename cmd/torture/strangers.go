package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// fewFiles is a relay's limit of open files while strangers take all they can get.
const fewFiles = 300

// strangers holds more connections than a relay with few descriptors can have: some say
// nothing, some push without end and read no answer. Each is made again a second after it was
// closed.
func strangers(ctx context.Context, t *trial) error {
	const silent, deaf, lasts = 600, 200, 20 * time.Second
	// A segment of this budget has 1 MiB, so the journal soon begins a new one.
	s, err := t.newScene(ctx, setting{more: "journal: {max_bytes: 32MiB}\n"})
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.launch(s.command("/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, fewFiles), s.binary, "run", "--config", s.config)); err != nil {
		return err
	}
	if err := errors.Join(s.waitReady(ctx), s.steady(ctx)); err != nil {
		return err
	}
	crowd, stop := context.WithCancel(ctx)
	defer stop()
	var made atomic.Int64
	var all sync.WaitGroup
	for range silent {
		all.Go(func() { intrude(crowd, s.ingest, "127.0.0.2", &made, sayNothing) })
	}
	for range deaf {
		all.Go(func() { intrude(crowd, s.ingest, "127.0.0.3", &made, readNothing) })
	}
	lacks := func() int64 { return silent + deaf - made.Load() }
	if err := s.while(ctx, "the strangers are connected", lacks, func() bool { return lacks() <= 0 }); err != nil {
		return err
	}
	newest := s.newestSegment()
	during, err := s.rates(ctx, lasts)
	if err != nil {
		return err
	}
	if err := s.until(ctx, "the journal begins a new file", func() bool { return s.newestSegment() > newest }); err != nil {
		return err
	}
	t.row.rounds = 1
	t.remark("%d connections were made; meanwhile %.0f events/s acknowledged to others", made.Load(), during.acknowledged)
	stop()
	all.Wait()
	if log, err := os.ReadFile(s.relay.log); err != nil || bytes.Contains(log, []byte("too many open files")) {
		return fmt.Errorf("the relay ran out of descriptors (%w): %s", err, s.relay.tail())
	}
	if during.acknowledged < t.rate/2 {
		return fmt.Errorf("strangers keep others out: %.0f of %.0f events/s", during.acknowledged, t.rate)
	}
	return s.settle(ctx)
}

// intrude connects from an address of this machine, again and again until ctx ends.
func intrude(ctx context.Context, address, from string, made *atomic.Int64, use func(net.Conn)) {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for ctx.Err() == nil {
		if c, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			made.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			use(c) // until it is closed
			stop()
			_ = c.Close()
		}
		time.Sleep(time.Second)
	}
}

func sayNothing(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// readNothing sends pushes of an unknown type, with a good credential.
func readNothing(c net.Conn) {
	request := bytes.Repeat([]byte("POST /loki/api/v1/push HTTP/1.1\r\nHost: x\r\nAuthorization: Basic dG9ydHVyZTp0b3J0dXJlLWhhcy1hLXBhc3N3b3Jk\r\nContent-Length: 0\r\n\r\n"), 20)
	for {
		if _, err := c.Write(request); err != nil {
			return
		}
	}
}

// newestSegment returns the name of the journal's newest file of events. Trimmed files are
// missing, so that counting would not work.
func (s *scene) newestSegment() (name string) {
	all, _ := filepath.Glob(filepath.Join(s.dataDir, "store", eventsLog, "*.seg")) // no bad pattern
	if len(all) > 0 {
		name = slices.Max(all) // their names have leading zeros
	}
	return name
}
