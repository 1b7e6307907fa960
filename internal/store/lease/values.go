package lease

import (
	"encoding/json"

	"github.com/auditrelay/auditrelay/internal/store"
)

// The table's keys.
const (
	clusterKeys = "cluster/"
	epochKey    = clusterKeys + "epoch/"
	beatKey     = clusterKeys + "beat/"
)

// beatOf decodes a heartbeat. A relay whose heartbeat cannot be read is given nothing.
func beatOf(v store.Value) (b Beat) {
	_ = json.Unmarshal(v.Data, &b)
	b.Rev, b.Dead = v.Rev, v.Data == nil && v.Rev > 0
	return b
}

// epochOf decodes an epoch. One that cannot be read has no holder: whoever replaces it knows
// its revision.
func epochOf(v store.Value) (e Epoch, err error) {
	if v.Data != nil {
		err = json.Unmarshal(v.Data, &e)
	}
	e.Rev = v.Rev
	return e, err
}
