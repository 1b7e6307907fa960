package lease

import (
	"encoding/json"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// The table's keys.
const (
	clusterKeys = "cluster/"
	epochKey    = clusterKeys + "epoch/"
	beatKey     = clusterKeys + "beat/"
)

// epochValue is a job's epoch in the table.
type epochValue struct {
	Number uint64    `json:"number"`
	Holder string    `json:"holder,omitempty"`
	For    string    `json:"for,omitempty"`
	Since  time.Time `json:"since"` // by its writer's clock, for people
}

// beatValue is a relay's heartbeat in the table.
type beatValue struct {
	Jobs   []string  `json:"jobs"` // that it can do
	At     time.Time `json:"at"`   // by its clock, for people
	Leaves bool      `json:"leaves,omitempty"`
	Says   string    `json:"says,omitempty"` // see Options.Says
}

// beatOf decodes a heartbeat. A relay whose heartbeat cannot be read is given nothing.
func beatOf(v store.Value) Beat {
	var b beatValue
	_ = json.Unmarshal(v.Data, &b)
	return Beat{Rev: v.Rev, Dead: v.Data == nil && v.Rev > 0, Leaves: b.Leaves, Jobs: b.Jobs}
}

// epochOf decodes an epoch. One that cannot be read has no holder: whoever replaces it knows
// its revision.
func (p *part) epochOf(v store.Value) Epoch {
	var e epochValue
	if err := json.Unmarshal(v.Data, &e); err != nil && v.Data != nil {
		p.Logger.Error("the epoch of a job cannot be read, and is replaced", "key", v.Key, "error", err)
	}
	return Epoch{Rev: v.Rev, Number: e.Number, Holder: e.Holder, For: e.For}
}
