package journal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/streams"
)

// Headers of a quarantined record's message; its payload is what is left of
// the record, if anything.
const (
	headerStream     = "Auditrelay-Stream"
	headerPosition   = "Auditrelay-Position"
	headerPositionTo = "Auditrelay-Position-To"
	headerKept       = "Auditrelay-Kept"
	headerLoss       = "Auditrelay-Loss"
)

// Quarantined is a run of positions whose records cannot be read, or a damaged
// file. Each is named once, however many sinks meet it and however often the relay starts.
type Quarantined struct {
	Stream string `json:"stream"`
	// From and To are the first and the last position, in Stream; both are 0 for a
	// file of the stream that holds no records. The file is kept then.
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
	// Kept is the file, relative to the data directory, that holds the damaged
	// bytes; empty where none are left, or the quarantine itself holds them.
	Kept string    `json:"kept,omitempty"`
	Time time.Time `json:"time"` // when it was found
	// Loss names the loss where the positions are other records' by now, as the
	// stream went back or was replaced; empty otherwise.
	Loss string `json:"loss,omitempty"`
	// Bytes of the record that the quarantine holds.
	Bytes int `json:"bytes"`
}

// positions is how many it names.
func (q *Quarantined) positions() float64 {
	if q.From == 0 {
		return 0
	}
	return float64(q.To - q.From + 1)
}

// subject is where it stands in the quarantine.
func (q *Quarantined) subject() string {
	if q.From == 0 {
		return fmt.Sprintf("%s.%s", q.Stream, strings.Map(func(r rune) rune {
			if strings.ContainsRune(" .*>", r) {
				return '_'
			}
			return r
		}, filepath.Base(q.Kept)))
	}
	if q.Loss != "" { // the same positions may be lost again
		return fmt.Sprintf("%s.%d.%s", q.Stream, q.From, q.Loss)
	}
	return fmt.Sprintf("%s.%d", q.Stream, q.From)
}

// setAside names a run of positions in the quarantine, and returns when it is
// there. The subject is the first position, and takes one message: so whoever
// comes second, be it another sink or the same after a crash, changes nothing.
func (j *Journal) setAside(ctx context.Context, q Quarantined, data []byte) error {
	m := nats.NewMsg(j.names.quarantineSubject + "." + q.subject())
	m.Header.Set(headerStream, q.Stream)
	m.Header.Set(headerPosition, strconv.FormatUint(q.From, 10))
	m.Header.Set(headerPositionTo, strconv.FormatUint(q.To, 10))
	m.Header.Set(headerReason, headerText(q.Reason))
	if q.Loss != "" {
		m.Header.Set(headerLoss, q.Loss)
	}
	if q.Kept != "" {
		m.Header.Set(headerKept, headerText(q.Kept))
	}
	if len(data) <= j.conn.recordLimit() { // a longer one stands in the file that Kept names
		m.Data = data
	}
	if q.Stream == j.names.events && j.lost != nil {
		defer j.lost() // also where another relay was first to name it
	}
	_, err := j.conn.JetStream.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(0))
	if isWrongLast(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set positions %d to %d of %s aside: %w", q.From, q.To, q.Stream, err)
	}
	j.metrics.quarantined.Inc()
	j.metrics.lost.Add(q.positions())
	j.log.Error("records of the journal cannot be read and were set aside", "stream", q.Stream,
		"first_position", q.From, "last_position", q.To, "reason", q.Reason, "kept", q.Kept, "quarantine", j.names.quarantine)
	return j.noteDamage(ctx, q)
}

func isWrongLast(err error) bool {
	const wrongLastSequence = 10071
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == wrongLastSequence
}

// quarantinedOf reads the headers of a quarantine's message. It is false for a
// message that names nothing: see headerAccepted.
func quarantinedOf(header nats.Header, size int, at time.Time) (Quarantined, bool) {
	if header.Get(headerAccepted) != "" {
		return Quarantined{}, false
	}
	q := Quarantined{
		Stream: header.Get(headerStream), Reason: header.Get(headerReason), Kept: header.Get(headerKept), Loss: header.Get(headerLoss),
		Time: at.UTC(), Bytes: size,
	}
	q.From, _ = strconv.ParseUint(header.Get(headerPosition), 10, 64)
	q.To, _ = strconv.ParseUint(header.Get(headerPositionTo), 10, 64)
	q.To = max(q.From, q.To)
	return q, true
}

// Quarantine returns what stands in the quarantine, oldest first.
func (j *Journal) Quarantine(ctx context.Context) ([]Quarantined, error) {
	all, _, err := j.readQuarantine(ctx)
	return all, err
}

// readQuarantine also returns the position up to which damage is accepted.
func (j *Journal) readQuarantine(ctx context.Context) (all []Quarantined, accepted uint64, err error) {
	stream, err := j.conn.JetStream.Stream(ctx, j.names.quarantine)
	if err != nil {
		return nil, 0, fmt.Errorf("open the quarantine: %w", err)
	}
	state := stream.CachedInfo().State
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		msg, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the quarantine: %w", err)
		}
		if q, names := quarantinedOf(msg.Header, len(msg.Data), msg.Time); names {
			all = append(all, q)
		}
		through, _ := strconv.ParseUint(msg.Header.Get(headerAccepted), 10, 64)
		accepted = max(accepted, through)
	}
	return all, accepted, nil
}

// FollowQuarantine calls handle for what stands in the quarantine and for what
// comes to it, in order and at least once, until ctx ends. Where handle fails
// it is called again, for as long as it takes. The position is kept over
// restarts, so what was set aside before a crash is told after it.
func (j *Journal) FollowQuarantine(ctx context.Context, handle func(context.Context, Quarantined) error) error {
	f := &streams.Follower{JetStream: j.conn.JetStream, Stream: j.names.quarantine, Durable: "audit", Logger: j.log}
	return f.Run(ctx, func(ctx context.Context, msg jetstream.Msg) error {
		var at time.Time
		if meta, err := msg.Metadata(); err == nil {
			at = meta.Timestamp
		}
		q, names := quarantinedOf(msg.Headers(), len(msg.Data()), at)
		if !names {
			return nil
		}
		return handle(ctx, q)
	})
}
