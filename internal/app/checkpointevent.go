package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/relay"
)

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
		body, err = jsondiff.Canonical(body)
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
