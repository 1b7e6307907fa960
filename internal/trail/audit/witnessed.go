package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	// TypeWitnessRefused is for a witness with another history of this trail; its Detail is
	// a WitnessRefusal.
	TypeWitnessRefused = "trail.witness_refused"
	// TypeWitnessAgreed is for such a witness once it cosigns again; its Detail is a
	// WitnessRefusal with the cosigned checkpoint, and no reason.
	TypeWitnessAgreed = "trail.witness_agreed"
)

// WitnessRefusal is a witness's answer to a checkpoint of this trail. No signature vouches
// for a refusal: the relay heard it over the witness's own connection.
type WitnessRefusal struct {
	// Witness is the witness's key, in the note form.
	Witness string `json:"witness"`
	Reason  string `json:"reason,omitempty"`
	// WitnessSize is the size of the witness's last cosigned tree; 0: it did not say.
	WitnessSize int64 `json:"witness_size,omitempty"`
	// Origin, Size and Root are the checkpoint's, and Checkpoint is its signed note.
	Origin     string    `json:"origin"`
	Size       int64     `json:"size"`
	Root       tlog.Hash `json:"root"`
	Checkpoint string    `json:"checkpoint"`
}

// accuseAgain is the least time from an entry about a witness to one about a refusal of it. Each entry
// is followed by a checkpoint for the witness to sign, so one that signs and refuses in turn
// would fill the trail.
const accuseAgain = time.Hour

// RecordWitness appends an entry of a type, TypeWitnessRefused or TypeWitnessAgreed, where it differs from
// the witness's newest one. The first one is no agreement, and a refusal is not entered within an hour of an
// agreement.
func (t *Trail) RecordWitness(ctx context.Context, kind string, r WitnessRefusal) error {
	subject := "witness " + r.Witness
	_, err := Update(ctx, t, OwnProject, "", subject, func(last Entry, found bool) (*Entry, error) {
		switch {
		case !found && kind == TypeWitnessAgreed, found && last.Type == kind:
			return nil, nil
		case found && kind == TypeWitnessRefused && time.Since(last.Time) < accuseAgain:
			return nil, nil
		}
		detail, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", kind, err)
		}
		return &Entry{Type: kind, Project: OwnProject, Subject: subject, Time: time.Now(), Detail: detail}, nil
	})
	return err
}
