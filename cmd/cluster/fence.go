package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fence watches what the relays write to their table: each attempt, as it passes the servers, and
// what the servers have stored. So it counts, without asking a relay, what was refused to one that
// others had replaced, and would see a position that such a relay has moved.
type fence struct {
	conns  []*nats.Conn
	reads  jetstream.ConsumeContext
	stream string

	mu       sync.Mutex        // guards the fields below
	newest   map[string]uint64 // the stored sequences of the values that guard others, by key
	stored   map[string]bool   // ids of guarded messages
	refused  map[string]refusal
	moves    int      // positions that were stored under an epoch
	trespass []string // those of them under an earlier one
}

// refusal is a write under a value that somebody else had replaced.
type refusal struct{ key, guard string }

// The keys of the relays' table that matter here. Heartbeats and epochs guard others' writes.
const (
	clusterKeys  = "cluster/"
	beatKey      = "cluster/beat/"
	epochKey     = "cluster/epoch/"
	positionKeys = "position/"
)

const reconnectWait = 100 * time.Millisecond

// headerGuard names the subject whose newest sequence a message expects.
const headerGuard = "Nats-Expected-Last-Subject-Sequence-Subject"

// watchTable connects to each of the servers, since one may be cut off from the others.
func watchTable(ctx context.Context, stream string, servers []string) (*fence, error) {
	f := &fence{stream: stream, newest: map[string]uint64{}, stored: map[string]bool{}, refused: map[string]refusal{}}
	for _, url := range servers {
		conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait))
		if err == nil {
			f.conns = append(f.conns, conn)
			_, err = conn.Subscribe(stream+".>", func(m *nats.Msg) { f.passes(m.Subject, m.Header, m.Data) })
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("watch what passes the server %s: %w", url, err)
		}
	}
	if err := f.read(ctx, strings.Join(servers, ",")); err != nil {
		f.close()
		return nil, fmt.Errorf("read the stream %s: %w", stream, err)
	}
	return f, nil
}

// read follows the stream.
func (f *fence) read(ctx context.Context, url string) error {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait))
	if err != nil {
		return err
	}
	f.conns = append(f.conns, conn)
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ordered, err := js.OrderedConsumer(ctx, f.stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	f.reads, err = ordered.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil {
			f.holds(m.Subject(), m.Headers(), meta.Sequence.Stream)
		}
	})
	return err
}

// passes takes a message on its way to the stream. Other relays declare one dead by a message on
// its own heartbeat's subject, which has no jobs.
func (f *fence) passes(subject string, h nats.Header, data []byte) {
	key, guard, rev := f.guardOf(subject, h)
	id := h.Get(jetstream.MsgIDHeader)
	f.mu.Lock()
	defer f.mu.Unlock()
	if guard == "" || rev >= f.newest[guard] || f.stored[id] || strings.HasPrefix(key, epochKey) {
		return
	}
	if !strings.HasPrefix(key, beatKey) || bytes.Contains(data, []byte(`"jobs"`)) {
		f.refused[id] = refusal{key, guard}
	}
}

// holds takes a message of the stream.
func (f *fence) holds(subject string, h nats.Header, seq uint64) {
	key, guard, rev := f.guardOf(subject, h)
	f.mu.Lock()
	defer f.mu.Unlock()
	if guard != "" {
		f.stored[h.Get(jetstream.MsgIDHeader)] = true
	}
	if strings.HasPrefix(guard, epochKey) && guard != key {
		if strings.HasPrefix(key, positionKeys) {
			f.moves++
		}
		if rev < f.newest[guard] {
			f.trespass = append(f.trespass, fmt.Sprintf("%s was written at %d under the epoch of %d, and that of %s is %d", key, seq, rev, guard, f.newest[guard]))
		}
		f.newest[guard] = max(f.newest[guard], rev) // where its message was replaced before it was read
	}
	if strings.HasPrefix(key, clusterKeys) {
		f.newest[key] = max(f.newest[key], seq)
	}
}

// guardOf is a message's key, and the key and the sequence that it is conditional on.
func (f *fence) guardOf(subject string, h nats.Header) (key, guard string, rev uint64) {
	key = f.keyOf(subject)
	expected := h.Get(jetstream.ExpectedLastSubjSeqHeader)
	if expected == "" {
		return key, "", 0
	}
	if guard = key; h.Get(headerGuard) != "" {
		guard = f.keyOf(h.Get(headerGuard))
	}
	rev, err := strconv.ParseUint(expected, 10, 64)
	if err != nil || !strings.HasPrefix(guard, clusterKeys) {
		return key, "", 0
	}
	return key, guard, rev
}

// keyOf is the key whose values stand at a subject.
func (f *fence) keyOf(subject string) string {
	if key, is := strings.CutPrefix(subject, f.stream+".key."); is {
		return strings.Replace(key, ".", "/", 1)
	}
	group, encoded, grouped := strings.Cut(strings.TrimPrefix(subject, f.stream+".b64."), ".")
	if !grouped {
		group, encoded = "", group
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	if grouped {
		return group + "/" + string(text)
	}
	return string(text)
}

// begin forgets what was refused before a round.
func (f *fence) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.refused)
}

// attempts are what was refused since begin to a relay that others have replaced: its heartbeats,
// the positions of its sinks, and what else its jobs write.
func (f *fence) attempts(v victim) (a attempts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.refused {
		switch {
		case r.key == beatKey+v.member:
			a.beats++
		case strings.HasPrefix(r.key, positionKeys) && v.has(strings.TrimPrefix(r.guard, epochKey)):
			a.positions++
		case v.has(strings.TrimPrefix(r.guard, epochKey)):
			a.others++
		}
	}
	return a
}

// attempts counts the refused writes of a relay.
type attempts struct{ beats, positions, others int }

// sum is how many positions were stored under an epoch, and which of them under an earlier one.
func (f *fence) sum() (moves int, trespass []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moves, append([]string(nil), f.trespass...)
}

func (f *fence) close() {
	if f.reads != nil {
		f.reads.Stop()
	}
	for _, conn := range f.conns {
		conn.Close()
	}
}
