package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// bombMemory is a relay's memory limit under bombs, in MiB.
	bombMemory = 512
	// bombData is what the kernel lets it map. Go maps its heap in arenas of 64 MiB, which count as a
	// whole before they are touched, and still do after they were given back.
	bombData = 768
)

// bombed pushes bodies of all formats that are small to send and large to decode, together with
// good ones. Bodies within the limits are stored, and read back at every sink; Kafka is away,
// and gets them after a restart. The relay survives, within bombMemory by its peak RSS and within
// bombData by RLIMIT_DATA, and every acknowledged event arrives.
func bombed(ctx context.Context, t *trial) error {
	s, err := t.newScene(ctx, setting{
		rate: min(t.rate, 500), ingest: ", limits: {decompressed_bytes: 64MiB, in_flight_bytes: 192MiB}",
	})
	if err != nil {
		return err
	}
	defer s.close()
	s.env = append(s.env, "GOMEMLIMIT=400MiB")
	if err := s.startLimited(ctx); err != nil {
		return err
	}
	s.kafkaProxy.set(fault{refuse: true})
	rng := t.random()
	tally := map[int]int{}
	before := s.sim.Counts().Acknowledged
	for rounds := share(t.rounds, 5); t.row.rounds < rounds; t.row.rounds++ {
		if err := s.throwBombs(ctx, rng, tally); err != nil {
			return err
		}
		if err := s.storeBomb(ctx, rng, t.row.rounds); err != nil {
			return err
		}
		t.progress("round %d, answers by status %v, peak RSS %d MiB", t.row.rounds+1, tally, s.relay.peakMemory())
	}
	good := s.sim.Counts().Acknowledged - before
	first := s.relay.peakMemory()
	if err := s.relay.stop(); err != nil {
		return err
	}
	s.kafkaProxy.set(fault{})
	if err := s.startLimited(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	t.remark("bombs by status (0: cut off): %v; %d good events acknowledged meanwhile; peak RSS %d MiB, %d after a restart; of each stored push all arrived", tally, good, first, s.peak)
	switch {
	case good == 0:
		return fmt.Errorf("good pushes were not taken while bombs came")
	case max(first, s.peak) > bombMemory:
		return fmt.Errorf("the bombs cost %d MiB, more than %d", max(first, s.peak), bombMemory)
	}
	return nil
}

// startLimited starts a relay whose data the kernel bounds to bombData; if it reaches the
// bound it ends.
func (s *scene) startLimited(ctx context.Context) error {
	if err := s.startReady(ctx); err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: bombData << 20, Max: bombData << 20}
	if err := unix.Prlimit(s.relay.cmd.Process.Pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return &skip{"the limits of another process cannot be set here: " + err.Error()}
	}
	return nil
}

// throwBombs pushes some bombs at once.
func (s *scene) throwBombs(ctx context.Context, rng *rand.Rand, tally map[int]int) error {
	const clients = 8
	shapes := append(lokiShapes(), datadogShapes()...)
	var mu sync.Mutex // guards tally
	var all sync.WaitGroup
	for range clients {
		b, err := makeBomb(rng, shapes, 80<<20)
		if err != nil {
			return err
		}
		all.Go(func() {
			for range 3 {
				code := s.throwBomb(ctx, &b)
				mu.Lock()
				tally[code]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if s.relay.ended() {
		return fmt.Errorf("the bombs ended the relay: %s", s.relay.tail())
	}
	return nil
}

// throwBomb returns the status of the answer, or 0 if there is none.
func (s *scene) throwBomb(ctx context.Context, b *bomb) int {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.ingest+b.path, bytes.NewReader(b.body))
	if err != nil {
		return 0
	}
	req.SetBasicAuth(pushUser, pushPassword)
	req.Header.Set("Content-Type", b.contentType)
	if b.contentEncode != "" {
		req.Header.Set("Content-Encoding", b.contentEncode)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// storeBomb pushes as many labels as are taken, with many events, until they are
// acknowledged.
func (s *scene) storeBomb(ctx context.Context, rng *rand.Rand, round int) error {
	prefix := fmt.Sprintf("event-log-bomb%d-", round)
	stream := pushes.Stream{}
	events := uint64(1000 + rng.IntN(3000))
	var own []relay.Label
	switch rng.IntN(3) {
	case 0: // copied for each event, since each has one of its own
		for i := range 250 {
			stream.Labels = append(stream.Labels, relay.Label{Name: fmt.Sprintf("l%d", i)})
		}
		own = []relay.Label{{Name: "own", Value: "x"}}
	case 1:
		stream.Labels = []relay.Label{{Name: "long", Value: strings.Repeat("x", 16<<10)}}
	default:
		for i := range 200 {
			own = append(own, relay.Label{Name: fmt.Sprintf("m%d", i)})
		}
	}
	for n := range events {
		line := fmt.Sprintf(`{"event_id":"%s"}`, workspacesim.EventID(prefix, n))
		stream.Entries = append(stream.Entries, pushes.Entry{Time: time.Now().UnixNano(), Line: []byte(line), Meta: own})
	}
	body, err := pushes.Loki(nil, []pushes.Stream{stream})
	if err != nil {
		return err
	}
	if body, err = compressed(rng, "gzip", body); err != nil {
		return err
	}
	b := bomb{path: lokiPath, contentType: asJSON, contentEncode: "gzip", body: body}
	if err := s.until(ctx, "a push within the limits is taken", func() bool {
		return s.throwBomb(ctx, &b) == http.StatusNoContent
	}); err != nil {
		return err
	}
	ledger := workspacesim.Ledger{Prefix: prefix, Acknowledged: []workspacesim.Range{{From: 0, To: events}}}
	ledger.Counts.Acknowledged = events
	s.ledgers = append(s.ledgers, ledger)
	return nil
}
