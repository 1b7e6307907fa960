package verify

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// linesOf gives the lines of a copy; the last one may have no end.
func linesOf(in io.Reader) iter.Seq2[Delivered, error] {
	return func(yield func(Delivered, error) bool) {
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 1<<20), maxEvent)
		for lines.Scan() {
			if !yield(Delivered{Text: bytes.Clone(lines.Bytes())}, nil) {
				return
			}
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line has more than %d bytes", maxEvent)
		}
		if err != nil {
			yield(Delivered{}, err)
		}
	}
}

// copiedEvent is an event's word on the trail.
type copiedEvent struct {
	wrong      string // why it is no event, or one that was forged
	apart      string // why it is no event of the trail, though it looks like one
	checkpoint noted
	entry      bool
	place      audit.Place
	claim      claim
}

func (e *copiedEvent) isOther() bool {
	return !e.entry && e.checkpoint.note == "" && e.wrong == "" && e.apart == ""
}

// readDelivered decodes a record: an event, or an array of them, as in a record of the Kafka
// sink's mode batch. It leaves out all events without a word on the trail, and all but the first
// wrong one: a hostile array may have millions.
func readDelivered(d *Delivered) (made []copiedEvent) {
	if d.Event != nil {
		return []copiedEvent{readEvent(d.Event)}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(d.Text), []byte("[")) {
		return []copiedEvent{readText(d.Text)}
	}
	wrong := false
	for event, err := range cloudevents.Split(d.Text) {
		one := readText(event)
		if err != nil {
			one.wrong = "is no event: " + err.Error()
		}
		doubtful := one.wrong != "" || one.apart != ""
		if !one.isOther() && (!doubtful || !wrong) {
			made = append(made, one)
		}
		wrong = wrong || doubtful
	}
	return made
}

// Pushed reports whether events of a CloudEvents type were pushed. No such event is an
// entry, whatever its body says: entries are the relay's own.
func Pushed(kind string) bool {
	return kind == "event_log" || strings.HasPrefix(kind, "event_log.")
}

// readText decodes a CloudEvent, or a bare body.
func readText(text []byte) copiedEvent {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return copiedEvent{}
	}
	if !bytes.Contains(text, []byte(`"specversion"`)) {
		return readBare(text)
	}
	e, err := cloudevents.ParseJSON(text)
	switch {
	case err == nil:
		return readEvent(&e)
	case errors.Is(err, cloudevents.ErrAmbiguous):
		return copiedEvent{wrong: "is no event: " + err.Error()}
	case !json.Valid(text):
		return copiedEvent{wrong: "is no event: it is no JSON"}
	}
	return readBare(text)
}

// readEvent decodes an event with attributes. Most are of the event stream, and are passed over
// fast.
func readEvent(e *relay.Event) copiedEvent {
	if Pushed(e.Type) && !e.OfTrail() {
		return pushedEvent(e)
	}
	if e.Type == audit.TypeCheckpoint {
		return readCheckpoint(e)
	}
	made := readEntry(e.Body)
	switch {
	case made.entry:
		made.claim.name, _ = nameIn(e, made.place.Index)
		if made.claim.wrong == "" {
			made.claim.wrong = differs(e, made.place.Index)
		}
	case e.OfTrail() || strings.HasPrefix(e.Source, relay.SourceOf("", "")):
		made.wrong = fmt.Sprintf("is no entry: the event %q of the type %q is none of the pushed ones, and its body names no place in the trail; it was forged, or the sink gives entries in another form", e.ID, e.Type)
	default: // of another program, in the same place
		made = copiedEvent{apart: fmt.Sprintf("is the event %q of the type %q and of the source %q, which the relay does not have", e.ID, e.Type, e.Source)}
	}
	return made
}

// pushedEvent names a pushed event that looks like one of the trail.
func pushedEvent(e *relay.Event) copiedEvent {
	if !bytes.Contains(e.Body, []byte(`"trail"`)) {
		return copiedEvent{}
	}
	made := readEntry(e.Body)
	if !made.entry {
		return copiedEvent{}
	}
	return copiedEvent{apart: fmt.Sprintf("is the pushed event %q of the type %q, whose body imitates entry %d", e.ID, e.Type, made.place.Index)}
}

// differs holds the attributes of an entry's event against its body.
func differs(e *relay.Event, index int64) string {
	var is audit.Entry
	if err := json.Unmarshal(e.Body, &is); err != nil {
		return err.Error()
	}
	for _, a := range []struct{ name, got, want string }{
		{"source", e.Source, relay.TrailSource},
		{"type", e.Type, is.Type},
		{"subject", e.Subject, is.Subject},
		{"project", e.Project, is.Project},
		{"environment", e.Environment, is.Environment},
		{"time", e.Time.UTC().Format(time.RFC3339Nano), is.Time.UTC().Format(time.RFC3339Nano)},
		{"receivedtime", e.Received.UTC().Format(time.RFC3339Nano), is.Time.UTC().Format(time.RFC3339Nano)},
		{"datacontenttype", e.ContentType, audit.EventContentType},
	} {
		if a.got != a.want {
			return fmt.Sprintf("its attribute %s is %q, and the entry says %q", a.name, a.got, a.want)
		}
	}
	if _, fits := nameIn(e, index); !fits {
		return fmt.Sprintf("its attribute id is %q, which is not that of entry %d", e.ID, index)
	}
	return ""
}

// nameIn is the log's name in the id of an entry's event, which ends with the index.
func nameIn(e *relay.Event, index int64) (name string, fits bool) {
	return strings.CutSuffix(e.ID, fmt.Sprintf("@%d", index))
}

// readCheckpoint decodes the event of a checkpoint, and holds what it repeats against the note.
func readCheckpoint(e *relay.Event) copiedEvent {
	var is struct {
		Type, Checkpoint, Origin string
		Base, Size               int64
		Root                     tlog.Hash
		Time                     time.Time
	}
	_, err := jsontext.Canonical(e.Body) // refuses a name that stands there twice
	if err == nil {
		body := json.NewDecoder(bytes.NewReader(e.Body))
		body.DisallowUnknownFields() // nothing vouches for more
		err = body.Decode(&is)
	}
	c, noteErr := proof.ReadCheckpoint([]byte(is.Checkpoint))
	prefix := fmt.Sprintf("@checkpoint-%d-", c.Size)
	switch {
	case err != nil || noteErr != nil:
		return copiedEvent{wrong: fmt.Sprintf("is no checkpoint of the trail, though its type is %s", audit.TypeCheckpoint)}
	case is.Type != e.Type, is.Origin != c.Origin, is.Base != proof.BaseOf(c.Origin), is.Size != c.Size, is.Root != c.Root, !is.Time.Equal(e.Time),
		!e.Received.Equal(e.Time), e.ContentType != audit.EventContentType, !e.OfTrail(), e.Subject != audit.CheckpointSubject, e.Project != audit.OwnProject, e.Environment != "",
		!strings.HasPrefix(e.ID, c.Origin+"+"), !strings.Contains(e.ID, prefix):
		return copiedEvent{wrong: fmt.Sprintf("is the event %q of a checkpoint, and its attributes or its body are not those of the signed note", e.ID)}
	}
	return copiedEvent{checkpoint: noted{note: is.Checkpoint, at: e.Time}}
}

// readBare decodes a body without attributes.
func readBare(body []byte) copiedEvent {
	if !json.Valid(body) {
		return copiedEvent{apart: "is no JSON"}
	}
	if bytes.Contains(body, []byte(audit.TypeCheckpoint)) {
		var of struct{ Type, Checkpoint string }
		if json.Unmarshal(body, &of) == nil && of.Type == audit.TypeCheckpoint {
			return copiedEvent{checkpoint: noted{note: of.Checkpoint, bare: true}}
		}
	}
	if !bytes.Contains(body, []byte(`"trail"`)) && !bytes.Contains(body, []byte(`"subject"`)) {
		return copiedEvent{}
	}
	made := readEntry(body)
	made.claim.bare = true
	return made
}

var errNoPlace = fmt.Errorf("%w: it has no member trail", audit.ErrNoEntry)

// readEntry decodes the body of an entry's event. Anything else that looks like it is apart.
func readEntry(body []byte) (made copiedEvent) {
	place, leaf, err := audit.ReadEvent(body)
	if place == nil {
		if looksLikeEntry(body) {
			made.apart = fmt.Sprintf("imitates an entry: %v", cmp.Or(err, errNoPlace))
		}
		return made
	}
	made.place, made.entry = *place, true
	made.claim.leaf = made.place.Leaf
	switch {
	case errors.Is(err, audit.ErrLeafOmitted):
		made.claim.omitted = true
	case err != nil:
		made.claim.wrong = err.Error()
	default:
		made.claim.leaf = tlog.RecordHash(leaf)
		_, made.claim.omitted = proof.ParseDigest(leaf)
	}
	if made.place.Root != nil {
		made.claim.root = *made.place.Root
	}
	if f, interesting := factOf(leaf); err == nil && interesting {
		f.index = made.place.Index
		made.claim.fact = &f
	}
	return made
}

// looksLikeEntry reports whether a body has the members that all entries have.
func looksLikeEntry(body []byte) bool {
	var e audit.Entry
	return json.Unmarshal(body, &e) == nil && e.Type != "" && !Pushed(e.Type) && e.Project != "" && e.Subject != "" && !e.Time.IsZero()
}
