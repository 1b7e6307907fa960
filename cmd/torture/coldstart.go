package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

const (
	backlogClients = 4
	// A push has backlogLines lines of backlogLine hexadecimal digits; S2 compresses them
	// to a half.
	backlogLines, backlogLine = 50, 20_000
)

// coldStart has a backlog, a kill under load, and a start with an empty page cache.
func coldStart(ctx context.Context, t *trial) error {
	s, err := t.backlogScene(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startReady(ctx); err != nil {
		return err
	}
	pushed, err := s.pile(ctx, int64(t.backlog)<<20)
	s.relay.kill()
	if err != nil {
		return err
	}
	if err := dropCaches(); err != nil {
		t.remark("the page cache was not dropped: %v", err)
	}
	began := time.Now()
	if err := s.start(); err != nil {
		return err
	}
	if err := s.until(ctx, "a push is taken", func() bool {
		code, _ := s.push(ctx)
		return code == http.StatusNoContent
	}); err != nil {
		return err
	}
	took, read, cpu := time.Since(began), readBytes(s.relay.cmd.Process.Pid), cpuSeconds(s.relay.cmd.Process.Pid)
	t.remark("%d MiB of backlog: the first push was taken after %.2f s and %.2f CPU-s, with %d MiB read from disk",
		t.backlog, took.Seconds(), cpu, read>>20)
	if read>>20 > int64(t.backlog)/2 { // so it shows on a machine of any speed
		return errors.New("the start has read all of the backlog before it took a push")
	}
	if err := s.relay.stop(); err != nil {
		return err
	}
	return s.countJournal(ctx, pushed+1)
}

// backlogScene is a relay whose only sink is not there. The budget is so large that
// the relay does not read samples of the backlog to account for it.
func (t *trial) backlogScene(ctx context.Context) (*scene, error) {
	free, err := rig.FreeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	s := &scene{
		t: t, binary: t.binary, dataDir: filepath.Join(t.dir, "data"), config: filepath.Join(t.dir, "relay.yaml"),
		ingest: free[0], admin: free[1],
	}
	text := fmt.Sprintf(`data_dir: %s
ingest: {listen: "%s"}
admin: {listen: "%s"}
journal: {max_bytes: %dMiB}
sinks:
  - {name: gone, kafka: {brokers: ["%s"], topic: events}}
environments:
  - {project: torture, environment: live, credentials: [{username: %s, password: %s}]}
`, s.dataDir, s.ingest, s.admin, 9*t.backlog+1024, free[2], pushUser, pushPassword)
	return s, os.WriteFile(s.config, []byte(text), 0o600)
}

// pile pushes until the journal has so many bytes, and returns how many events were
// acknowledged.
func (s *scene) pile(ctx context.Context, size int64) (events uint64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var taken atomic.Uint64
	var over atomic.Bool // the relay is to be killed
	var clients sync.WaitGroup
	for i := range backlogClients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(s.t.seed, uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				body := backlogBody(random, i, n)
				if code, _ := s.pushBody(ctx, strings.NewReader(body), int64(len(body))); code == http.StatusNoContent {
					taken.Add(backlogLines)
				} else if ctx.Err() == nil && !over.Load() {
					stop(fmt.Errorf("a push of the backlog got the status %d", code))
				}
			}
		})
	}
	for ctx.Err() == nil && s.used(ctx) < size {
		time.Sleep(20 * time.Millisecond)
	}
	err = context.Cause(ctx)
	over.Store(true)
	s.relay.kill() // under load
	stop(nil)
	clients.Wait()
	return taken.Load(), err
}

func backlogBody(random *rand.Rand, client, n int) string {
	var b strings.Builder
	b.WriteString(`{"streams":[{"stream":{"a":"b"},"values":[`)
	noise := make([]byte, backlogLine/2)
	for i := range backlogLines {
		for k := 0; k+8 <= len(noise); k += 8 {
			for j, v := 0, random.Uint64(); j < 8; j++ {
				noise[k+j] = byte(v >> (8 * j))
			}
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `["%d","{\"event_id\":\"%d-%d-%d\",\"noise\":\"%s\"}"]`, time.Now().UnixNano(), client, n, i, hex.EncodeToString(noise))
	}
	b.WriteString(`]}]}`)
	return b.String()
}

// used is the size of the journal, 0 if unknown.
func (s *scene) used(ctx context.Context) int64 {
	used, _ := strconv.ParseFloat(s.gauge(ctx, "auditrelay_journal_bytes"), 64)
	return int64(used)
}

// gauge reads a metric without labels; "" if there is none.
func (s *scene) gauge(ctx context.Context, name string) string {
	_, text := s.ask(ctx, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// countJournal has the stopped relay's journal verified, and so reads and decodes all of
// it.
func (s *scene) countJournal(ctx context.Context, acknowledged uint64) error {
	v, err := s.verify(ctx)
	if err != nil {
		return err
	}
	s.t.row.acknowledged = acknowledged
	s.t.row.delivered = int64(v.Events)
	s.t.row.lost = max(0, int64(acknowledged)-int64(v.Events))
	return v.settled()
}

// dropCaches empties the page cache. It needs root.
func dropCaches() error {
	unix.Sync() // only pages already on disk are dropped
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// cpuSeconds is the CPU time of a process, 0 if unknown.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	const perSecond = 100 // of the kernel's ticks, on every Linux
	return (user + system) / perSecond
}

// readBytes counts the bytes a process has read from disk, 0 if unknown.
func readBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "read_bytes: "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
