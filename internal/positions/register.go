package positions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/streams"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

// register is the durable list of the sinks with a position: a stream with one message per
// sink, each on its own subject. The message says kept, or retired once somebody removed the
// position. So two relays with one journal never overwrite each other's names. A running
// relay knows a name until the register says retired, even if the servers lose their newest
// writes.
type register struct {
	conn    *streamserver.Conn
	events  jetstream.Stream // its consumers are the positions
	stream  jetstream.Stream
	subject string

	mu   sync.Mutex
	seen uint64          // the newest message read; guarded by mu
	kept map[string]bool // by sink; false once retired; guarded by mu
}

const (
	kept    = "kept"
	retired = "retired"
)

// openRegister makes or opens the register, for the positions in events.
func openRegister(ctx context.Context, conn *streamserver.Conn, events jetstream.Stream, cfg config.Journal, log *slog.Logger) (*register, error) {
	r := &register{conn: conn, events: events, subject: strings.ToLower(cfg.StreamPrefix) + ".sinks", kept: map[string]bool{}}
	name := cfg.StreamPrefix + "_SINKS"
	err := streams.Await(ctx, log, "stream "+name, func(ctx context.Context) (err error) {
		r.stream, err = conn.JetStream.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{r.subject + ".>"},
			Description: "auditrelay: the sinks that have a position",
			Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Replicas: max(1, cfg.Replicas),
			MaxMsgsPerSubject: 1,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", name, err)
	}
	return r, streams.Await(ctx, log, "the register of sinks", r.adopt)
}

// read returns the sinks with a position, sorted.
func (r *register) read(ctx context.Context) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Only the register's leader answers.
	info, err := r.stream.Info(ctx, jetstream.WithSubjectFilter(r.subject+".>"))
	if err != nil {
		return nil, fmt.Errorf("read the register of sinks: %w", err)
	}
	if info.State.LastSeq != r.seen {
		if err := r.readValues(ctx, info.State.Subjects); err != nil {
			return nil, err
		}
	}
	var sinks []string
	for sink, isKept := range r.kept {
		if !isKept {
			continue
		}
		if _, there := info.State.Subjects[r.subject+"."+sink]; !there { // the servers lost it
			if err := r.write(ctx, sink, kept); err != nil {
				return nil, err
			}
		}
		sinks = append(sinks, sink)
	}
	r.seen = info.State.LastSeq
	slices.Sort(sinks)
	return sinks, nil
}

// readValues reads the register's word on each sink. mu is held.
func (r *register) readValues(ctx context.Context, subjects map[string]uint64) error {
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		msg, err := r.stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // damaged on disk: adopt writes it again if the sink has a position
		}
		if err != nil {
			return fmt.Errorf("read the register of sinks: %w", err)
		}
		name := strings.TrimPrefix(subject, r.subject+".")
		sink, isKept := entry(name, string(msg.Data))
		if _, known := r.kept[sink]; !known || sink == name {
			r.kept[sink] = isKept
		}
	}
	return nil
}

// entry reads a message of the register. The server's checksum does not cover the border
// between subject and message. Because of a flipped bit in the subject's length, letters of
// one stand in the other. Another word, of a later version, counts as kept.
func entry(name, value string) (sink string, isKept bool) {
	for _, word := range []string{kept, retired} {
		if sink, found := strings.CutSuffix(name+value, word); found && sink != "" {
			return sink, word == kept
		}
	}
	return name, true
}

// add registers a sink, before its position is made: after a crash between the two,
// nothing is trimmed until the sink is opened or retired.
func (r *register) add(ctx context.Context, sink string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[sink] {
		return nil
	}
	if err := r.write(ctx, sink, kept); err != nil {
		return err
	}
	r.kept[sink] = true
	return nil
}

// retire takes a sink out, after its position was removed: after a crash between the
// two, nothing is trimmed until it is retired again.
func (r *register) retire(ctx context.Context, sink string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.write(ctx, sink, retired); err != nil {
		return err
	}
	r.kept[sink] = false
	return nil
}

// has reports whether the sink is registered.
func (r *register) has(ctx context.Context, sink string) (bool, error) {
	sinks, err := r.read(ctx)
	return slices.Contains(sinks, sink), err
}

// any reports whether a sink was registered at the last look.
func (r *register) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept) > 0
}

func (r *register) write(ctx context.Context, sink, value string) error {
	m := &nats.Msg{Subject: r.subject + "." + sink, Data: []byte(value)}
	if err := r.conn.Put(ctx, r.stream.CachedInfo().Config.Name, m); err != nil {
		return fmt.Errorf("write sink %s to the register of sinks: %w", sink, err)
	}
	return nil
}

// adopt adds sinks with a position made by an earlier version, without a register.
// It takes none out, as the list of consumers may be incomplete.
func (r *register) adopt(ctx context.Context) error {
	list := r.events.ConsumerNames(ctx)
	var sinks []string
	for name := range list.Name() {
		if sink, ours := strings.CutPrefix(name, consumerPrefix); ours {
			sinks = append(sinks, sink)
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("list the sinks' positions: %w", err)
	}
	known, err := r.read(ctx)
	if err != nil {
		return err
	}
	for _, sink := range sinks {
		if slices.Contains(known, sink) {
			continue
		}
		if err := r.add(ctx, sink); err != nil {
			return err
		}
	}
	return nil
}
