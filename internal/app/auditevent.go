package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// startForwarding puts each entry of the audit trail into the journal, so every sink
// gets it too. A crash between the two is harmless: the trail's follower asks again,
// and the event has the same id.
func (r *process) startForwarding(context.Context) error {
	forward := func(ctx context.Context, _ int64, e audit.Entry) error {
		event, err := r.auditEvent(e)
		if err != nil {
			return err
		}
		var b record.Batch
		b.AddEvent(&event)
		return r.journal.Append(ctx, &b)
	}
	r.stack.push("audit events", background(func(ctx context.Context) {
		if err := r.trail.Follow(ctx, "journal", forward); ctx.Err() == nil {
			r.fail(err)
		}
	}))
	return nil
}

// auditEvent makes an entry an event: the same one at each call, except for its arrival.
func (r *process) auditEvent(e audit.Entry) (relay.Event, error) {
	return eventOf(r.trail.NameOf(e.Index), e.Index, e, min(maxAuditEvent, r.journal.MaxEvent()-attributesRoom))
}

const (
	// maxAuditEvent bounds the body of an audit event, in bytes: brokers take 1 MB in
	// all by default, and the trail holds larger entries.
	maxAuditEvent = 512 << 10
	// attributesRoom is left for an event's attributes and labels, where an
	// external server takes small messages only.
	attributesRoom = 4 << 10
)

// eventOf makes an entry of the trail an event. Its body is the trail's own record, so
// a receiver can find its hash in the trail; one longer than limit is given in short.
func eventOf(trail string, index int64, e audit.Entry, limit int) (relay.Event, error) {
	raw, err := json.Marshal(e)
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode audit entry %d: %w", index, err)
	}
	body, err := jsondiff.Canonical(raw)
	if err == nil && len(body) > limit {
		body, err = shortened(e, body, limit)
	}
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode audit entry %d: %w", index, err)
	}
	return relay.Event{
		ID: fmt.Sprintf("%s@%d", trail, index), Type: e.Type, Subject: e.Subject,
		Source: relay.SourceOf(e.Project, e.Environment), Project: e.Project, Environment: e.Environment,
		Time: e.Time, Received: time.Now(), ContentType: "application/json", Body: body,
	}, nil
}

// omitted tells a receiver of a large entry what its event leaves out. The trail holds the
// entry whole.
type omitted struct {
	// RecordBytes and RecordSHA256 are of the trail's record: the leaf of an entry of more
	// than 65,535 bytes is made of these two.
	RecordBytes  int    `json:"record_bytes"`
	RecordSHA256 string `json:"record_sha256"`
	// The hashes of the members left out, as canonical JSON.
	BeforeSHA256 string `json:"before_sha256,omitempty"`
	AfterSHA256  string `json:"after_sha256,omitempty"`
	DetailSHA256 string `json:"detail_sha256,omitempty"`
	// Changes counts the changes left out of the detail.
	Changes int `json:"changes,omitempty"`
}

// shortened gives an entry in at most limit bytes: without its states, and with as many of
// its changes as there is room for.
func shortened(e audit.Entry, record []byte, limit int) ([]byte, error) {
	o := omitted{
		RecordBytes: len(record), RecordSHA256: jsondiff.Hash(record),
		BeforeSHA256: canonicalHash(e.Before), AfterSHA256: canonicalHash(e.After),
	}
	e.Before, e.After = nil, nil
	encode := func() ([]byte, error) {
		raw, err := json.Marshal(struct {
			audit.Entry
			Omitted omitted `json:"omitted"`
		}{e, o})
		if err != nil {
			return nil, err
		}
		return jsondiff.Canonical(raw)
	}
	whole := e.Detail
	body, err := encode()
	if err == nil && len(body) > limit {
		o.DetailSHA256 = canonicalHash(whole)
		e.Detail, o.Changes = fewerChanges(whole, limit-(len(body)-len(whole)))
		body, err = encode()
	}
	if err == nil && len(body) > limit {
		e.Detail, o.Changes = nil, 0
		body, err = encode()
	}
	return body, err
}

// fewerChanges cuts the list "changes" of a detail to about limit bytes, and counts the
// rest. A detail without such a list stays as it is.
func fewerChanges(detail json.RawMessage, limit int) (json.RawMessage, int) {
	const room = 256 // for the commas, the counts and the hashes
	var members map[string]json.RawMessage
	var changes []json.RawMessage
	if json.Unmarshal(detail, &members) != nil || json.Unmarshal(members["changes"], &changes) != nil {
		return detail, 0
	}
	size := len(detail) - len(members["changes"]) + room
	kept := 0
	for ; kept < len(changes) && size+len(changes[kept])+1 <= limit; kept++ {
		size += len(changes[kept]) + 1
	}
	members = maps.Clone(members)
	var err error
	if members["changes"], err = json.Marshal(changes[:kept]); err != nil {
		return detail, 0
	}
	fewer, err := json.Marshal(members)
	if err != nil {
		return detail, 0
	}
	return fewer, len(changes) - kept
}

func canonicalHash(raw json.RawMessage) string {
	canonical, err := jsondiff.Canonical(raw)
	if len(raw) == 0 || err != nil {
		return ""
	}
	return jsondiff.Hash(canonical)
}
