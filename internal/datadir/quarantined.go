package datadir

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/streams"
)

// Headers of a message in the quarantine's stream. Its payload is the rest of the record,
// if any.
const (
	headerStream     = "Auditrelay-Stream"
	headerPosition   = "Auditrelay-Position"
	headerPositionTo = "Auditrelay-Position-To"
	headerReason     = "Auditrelay-Reason"
	headerKept       = "Auditrelay-Kept"
	headerLoss       = "Auditrelay-Loss"
	headerAccepted   = "Auditrelay-Accepted"
)

// Quarantined is a run of positions with unreadable records, or a damaged file. Each is
// named once, for any number of sinks and starts.
type Quarantined struct {
	Stream string `json:"stream"`
	// From and To are the first and the last position, in Stream. Both are 0 for a file
	// without records; it is kept then.
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
	// Kept is the file of the damaged bytes, relative to the data directory. It is empty
	// if none are left, or if the quarantine itself holds them.
	Kept string    `json:"kept,omitempty"`
	Time time.Time `json:"time"` // of discovery
	// Loss names a loss whose positions belong to other records by now, as the stream
	// went back or was replaced. It is empty otherwise.
	Loss string `json:"loss,omitempty"`
	// Bytes of the record held by the quarantine.
	Bytes int `json:"bytes"`
}

// Positions counts the positions.
func (q *Quarantined) Positions() uint64 {
	if q.From == 0 {
		return 0
	}
	return q.To - q.From + 1
}

// Message names the loss under the quarantine's subject. Its own subject is the first
// position, or the file: so the same loss has the same subject.
func (q *Quarantined) Message(subject string, data []byte) *nats.Msg {
	m := nats.NewMsg(subject + "." + q.subject())
	m.Data = data
	m.Header.Set(headerStream, q.Stream)
	m.Header.Set(headerPosition, strconv.FormatUint(q.From, 10))
	m.Header.Set(headerPositionTo, strconv.FormatUint(q.To, 10))
	m.Header.Set(headerReason, streams.HeaderText(q.Reason))
	if q.Loss != "" {
		m.Header.Set(headerLoss, q.Loss)
	}
	if q.Kept != "" {
		m.Header.Set(headerKept, streams.HeaderText(q.Kept))
	}
	return m
}

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

// ReadQuarantined reads the headers of a quarantine's message with size bytes. It returns
// false for a message without a loss: see [AcceptanceMessage].
func ReadQuarantined(header nats.Header, size int, at time.Time) (Quarantined, bool) {
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

// AcceptanceMessage is the quarantine's message for a person's acceptance of all damage
// up to a position.
func AcceptanceMessage(subject string, through uint64) *nats.Msg {
	m := nats.NewMsg(subject + ".accepted")
	m.Header.Set(headerAccepted, strconv.FormatUint(through, 10))
	return m
}

// Accepted reads an acceptance. It is 0 for any other message of the quarantine.
func Accepted(header nats.Header) (through uint64) {
	through, _ = strconv.ParseUint(header.Get(headerAccepted), 10, 64)
	return through
}

// quarantinedIn reads a message of the quarantine's stream from its file. It returns
// false for a message without a loss.
func quarantinedIn(f *blockfile.Frame) (Quarantined, bool) {
	header, err := nats.DecodeHeadersMsg(f.Header)
	if err != nil {
		return Quarantined{}, false
	}
	return ReadQuarantined(header, len(f.Data), f.Time)
}
