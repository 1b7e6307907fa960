// Package deadletters keeps the events refused for good by a sink, in a stream beside the
// journal.
//
// Each letter is one message, so a person can look at it, replay and discard it alone. Up
// to 1,000 letters form one atomic batch, at the cost of a handful of syncs. The last
// message of a batch has a message id, and the server stores it after the others: a batch
// refused as a duplicate is there whole. A server without atomic batches gets the letters
// one by one.
//
// A letter's subject is PREFIX.deadletters.SINK.SIZE.SOURCE, with SIZE rounded up to an
// eighth of a power of two, and the event's source in base64. The server counts messages by
// subject, so it knows the bytes of each sink and source, without a ledger for a crash to
// corrupt.
//
// Each source has a budget of its own at each sink, journal.dead_letter_bytes. A letter
// beyond it is kept all the same: if the sink's pump waited instead, the refused events of
// one environment would hold up all others, and the audit trail. But it counts as an
// undelivered event of its source ([Store.Beyond]), so the journal's budget bounds these
// letters too: at its share of it, the environment's own pushes are refused.
//
// Only the stream's leader answers, as a lagging replica may lack letters.
package deadletters

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
)

// Headers of a letter's message; its payload is a record of one event.
const (
	headerSink     = "Auditrelay-Sink"
	headerReason   = "Auditrelay-Reason"
	headerAttempts = "Auditrelay-Attempts"
	headerEvent    = "Auditrelay-Event-Id"
)

// overhead is the size of a letter without its payload and its own headers: the subject,
// the headers of its batch, and the server's frame.
const overhead = 200

// patience bounds the attempts to store letters. Then the caller tries again.
const patience = 15 * time.Second

// Store keeps dead letters. It is safe for concurrent use.
type Store struct {
	conn    *streamserver.Conn
	stream  jetstream.Stream
	name    string // of the stream
	subject string // begins each letter's
	budget  int64  // of each source at each sink, in bytes; 0 for none

	mu     sync.Mutex             // held while beyond is called
	beyond func(map[string]int64) // nil for nobody
}

// Beyond has f told how many bytes each source's letters take beyond their budgets: now, and
// whenever they are counted, which is after each change at the latest. f gets all sources
// with any, and its calls do not overlap.
func (s *Store) Beyond(ctx context.Context, f func(map[string]int64)) error {
	s.mu.Lock()
	s.beyond = f
	s.mu.Unlock()
	_, err := s.Usage(ctx)
	return err
}

// Open makes or opens the stream of dead letters. cfg must have its defaults. Each of the
// named sinks has metrics from the start, others have them with their first letter.
func Open(ctx context.Context, conn *streamserver.Conn, cfg config.Journal, log *slog.Logger, reg prometheus.Registerer, sinks ...string) (*Store, error) {
	s := &Store{
		conn: conn, name: streamserver.Layout(cfg.StreamPrefix).DeadLetters,
		subject: strings.ToLower(cfg.StreamPrefix) + ".deadletters", budget: int64(cfg.DeadLetterBytes),
	}
	err := streams.Await(ctx, log, "stream "+s.name, func(ctx context.Context) (err error) {
		s.stream, err = conn.JetStream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: s.name, Subjects: []string{s.subject + ".>"},
			Description: "auditrelay: events that a sink refused for good, one to a message",
			Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: max(1, cfg.Replicas),
			AllowAtomicPublish: true,         // a server before 2.12 leaves it out: see keep
			Duplicates:         2 * patience, // a retry stores no letter twice
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", s.name, err)
	}
	reg.MustRegister(newCollector(s, sinks))
	return s, nil
}

// Reject implements relay.DeadLetters. A crash on the way leaves some of the letters; the
// delivery is then tried again, and they stand twice, never not at all.
func (s *Store) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	for len(rejections) > 0 {
		letters := s.batch(sink, rejections)
		if err := s.keep(ctx, letters); err != nil {
			return fmt.Errorf("keep %d dead letters, the first of event %s: %w", len(letters), rejections[0].Event.ID, err)
		}
		rejections = rejections[len(letters):]
	}
	s.conn.Shrunk(s.name) // letters come and go; a look at all blocks costs less than their syncs
	if err := s.conn.Settle(s.name); err != nil {
		return err
	}
	s.count(ctx)
	return nil
}

// batch makes messages of the first rejections, as many as are stored at once.
func (s *Store) batch(sink string, rejections []relay.Rejection) []*nats.Msg {
	var letters []*nats.Msg
	size := 0
	for i := range rejections {
		m := s.message(sink, &rejections[i])
		size += m.Size()
		if i == batchLetters || i > 0 && size > batchBytes {
			break
		}
		letters = append(letters, m)
	}
	return letters
}

func (s *Store) message(sink string, r *relay.Rejection) *nats.Msg {
	var b record.Batch
	b.AddEvent(&r.Event)
	m := &nats.Msg{Header: nats.Header{}, Data: record.Append(nil, b.Bytes(), b.Len())}
	m.Header.Set(headerSink, sink)
	m.Header.Set(headerReason, streams.HeaderText(r.Reason))
	m.Header.Set(headerAttempts, strconv.Itoa(r.Attempts))
	m.Header.Set(headerEvent, streams.HeaderText(r.Event.ID))
	m.Subject = s.ofSink(sink) + strconv.Itoa(sizeClass(m.Size()+overhead)) + "." + token(r.Event.Source)
	return m
}

// maxSource bounds the part of a source in a subject, in bytes: the server bounds subjects.
const maxSource = 1000

// token is a source as a part of a subject.
func token(source string) string {
	if source == "" {
		return "-"
	}
	return base64.RawURLEncoding.EncodeToString([]byte(source[:min(len(source), maxSource)]))
}

// ofSink begins the subjects of a sink's letters.
func (s *Store) ofSink(sink string) string { return s.subject + "." + sink + "." }
