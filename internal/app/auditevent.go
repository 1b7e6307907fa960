package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/relay"
)

// startForwarding puts each entry of the audit trail, and each of its checkpoints, into the
// journal, so every sink gets them too. A crash between the two is harmless: the trail
// hands them on again, and the event has the same id.
func (c *control) startForwarding(context.Context) error {
	forward := func(ctx context.Context) {
		if err := c.trail.Forward(ctx, followsTrail, c.forwardEntry, c.forwardCheckpoint); ctx.Err() == nil {
			c.fail(err)
		}
	}
	if c.inCluster() { // the next relay that has control goes on with it
		forward = c.untilStop(forward)
	}
	c.stack.push("audit events", background(forward))
	return nil
}

// followsTrail names the journal's position in the trail.
const followsTrail = "journal"

// forwardEntry puts an entry into the journal, and notes it. A crash between the two leaves
// the older note, and the follower asks again.
func (c *control) forwardEntry(ctx context.Context, e audit.Recorded) error {
	place, event, err := c.placed(ctx, e)
	if err != nil {
		return err
	}
	if err := c.appendEvent(ctx, &event); err != nil {
		return err
	}
	c.trail.Forwarded(place)
	c.forwarded.Store(e.Index + 1)
	return nil
}

// appendEvent puts an event into the journal, under the turn: another relay may have forwarded it
// meanwhile.
func (c *control) appendEvent(ctx context.Context, event *relay.Event) error {
	if err := c.turn.Await(ctx); err != nil {
		return err
	}
	var b record.Batch
	b.AddEvent(event)
	return c.journal.Append(ctx, &b)
}

// auditEvent makes an entry an event: the same one at each call.
func (c *control) auditEvent(ctx context.Context, e audit.Recorded) (relay.Event, error) {
	_, event, err := c.placed(ctx, e)
	return event, err
}

func (c *control) placed(ctx context.Context, e audit.Recorded) (audit.Place, relay.Event, error) {
	place, err := c.trail.Place(ctx, e)
	if err != nil {
		return audit.Place{}, relay.Event{}, err
	}
	room := max(attributesRoom, attributesRoom/2+len(e.Type)+len(e.Subject)+len(e.Project)+len(e.Environment))
	event, err := eventOf(c.trail.NameOf(e.Index), e, place, min(maxAuditEvent, c.journal.MaxEvent()-room))
	return place, event, err
}

const (
	// maxAuditEvent bounds the body of an audit event, in bytes: brokers take 1 MB in
	// all by default, and the trail holds larger entries.
	maxAuditEvent = 512 << 10
	// attributesRoom is left for an event's attributes and labels, where an
	// external server takes small messages only: together with what the journal leaves for itself, 5,376
	// bytes of a message. Long names get more.
	attributesRoom = 3328
)

// eventOf makes an entry of the trail an event, with a body of at most limit bytes. It was
// received when it was made, so that whoever verifies a copy can hold each attribute against the
// entry.
func eventOf(trail string, e audit.Recorded, place audit.Place, limit int) (relay.Event, error) {
	body, err := audit.EventBody(e, place, limit)
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode audit entry %d: %w", e.Index, err)
	}
	return relay.Event{
		ID: fmt.Sprintf("%s@%d", trail, e.Index), Type: e.Type, Subject: e.Subject,
		Source: relay.TrailSource, Project: e.Project, Environment: e.Environment,
		Time: e.Time, Received: e.Time, ContentType: audit.EventContentType, Body: body,
	}, nil
}

// signedBody is the body of a checkpoint's event.
type signedBody struct {
	Type string `json:"type"`
	// Checkpoint is the signed note (C2SP tlog-checkpoint), verbatim; it alone is signed. The
	// other members repeat it for searches, except Base, the index of the tree's first entry.
	Checkpoint string    `json:"checkpoint"`
	Origin     string    `json:"origin"`
	Base       int64     `json:"base"`
	Size       int64     `json:"size"`
	Root       tlog.Hash `json:"root"`
	Time       time.Time `json:"time"`
}

// checkpointEvent makes a kept checkpoint an event: the same one at each call. It is no entry of
// the trail, so it makes no further checkpoint.
func checkpointEvent(c audit.Kept) (relay.Event, error) {
	body, err := json.Marshal(signedBody{audit.TypeCheckpoint, c.Note, c.Origin, c.Base, c.Size, c.Root, c.Time})
	if err == nil {
		body, err = jsontext.Canonical(body)
	}
	if err != nil {
		return relay.Event{}, fmt.Errorf("encode checkpoint %d: %w", c.Seq, err)
	}
	return relay.Event{
		ID: fmt.Sprintf("%s@checkpoint-%d-%d", audit.NameOf(c.PublicKey), c.Size, c.Seq), Type: audit.TypeCheckpoint, Subject: audit.CheckpointSubject,
		Source: relay.TrailSource, Project: ownProject,
		Time: c.Time, Received: c.Time, ContentType: audit.EventContentType, Body: body,
	}, nil
}

// forwardCheckpoint puts a checkpoint into the journal. After a crash the follower may
// ask again, and the event has the same id.
func (c *control) forwardCheckpoint(ctx context.Context, k audit.Kept) error {
	event, err := checkpointEvent(k)
	if err != nil {
		return err
	}
	if err := c.appendEvent(ctx, &event); err != nil {
		return err
	}
	c.covered.Store(k.Base + k.Size)
	return nil
}

// startSpans enters digests of the event stream into the trail. Late ones are a warning:
// nothing waits for them.
func (c *control) startSpans(context.Context) error {
	cfg := c.cfg().Audit.Spans
	if cfg.Disabled {
		return nil
	}
	for shard, log := range c.journal.Logs() {
		keeper := eventproof.New(eventproof.Options{Subject: eventproof.SubjectOf(shard), Interval: cfg.Interval, Events: cfg.Events, Logger: c.log})
		log.Seal(keeper.Note)
		log.KeepAfter(func() uint64 { return keeper.State().Through })
		c.spans = append(c.spans, keeper)
		c.stack.push("event spans", background(func(ctx context.Context) {
			select {
			case <-c.calm: // an earlier process may have left much of the journal to be digested
				keeper.Run(ctx, log, c.trail)
			case <-ctx.Done():
			}
		}))
	}
	c.admin.AddCheck(admin.Check{Name: "event spans", Probe: c.spansRemark})
	c.admin.AddStatus("spans", func(context.Context) (any, error) { return c.spanStates(), nil })
	return nil
}

// spanStates are how far the spans have come: in each log, where there are several.
func (c *control) spanStates() any {
	if len(c.spans) == 1 {
		return c.spans[0].State()
	}
	states := make([]eventproof.State, len(c.spans))
	for i, keeper := range c.spans {
		states[i] = keeper.State()
	}
	return states
}

func (c *control) spansRemark(context.Context) (string, error) {
	for _, keeper := range c.spans {
		if s := keeper.State(); s.Failing != "" {
			return "warning: the digests of the event stream are late: " + s.Failing, nil
		}
	}
	return "none are late", nil
}
