package settings

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/audit"
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/looks"
)

const (
	maxChanges = 500 // listed in one entry
	maxShown   = 512 // bytes of a value shown in a change
)

// detail is the Detail of an entry about a setting's state.
type detail struct {
	looks.Attribution
	// Changes are for reading: long values are cut, since before and after
	// have them whole. Omitted counts those beyond 500.
	Changes []jsondiff.Change `json:"changes,omitempty"`
	Omitted int               `json:"omitted,omitempty"`
	// Unsure: entries behind Before are damaged and may have been of this setting, so
	// there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
	// Look is when the look began and ended.
	Look audit.Window `json:"look"`
	// Requests are the ids of the reads that show the states before and after.
	Requests looks.Requests `json:"request_ids,omitzero"`
}

func (d detail) with(changes []jsondiff.Change) detail {
	d.Omitted = max(0, len(changes)-maxChanges)
	for _, c := range changes[:len(changes)-d.Omitted] {
		d.Changes = append(d.Changes, jsondiff.Change{Path: c.Path, Old: shorten(c.Old), New: shorten(c.New)})
	}
	return d
}

func (d detail) encode() json.RawMessage { return encode(d) }

func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil { // never: nothing here fails to encode
		return json.RawMessage("null")
	}
	return raw
}

// shorten cuts a long value: a string to its beginning, another to its size.
func shorten(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxShown {
		return raw
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return encode(fmt.Sprintf("(%d bytes of JSON)", len(raw)))
	}
	cut := maxShown / 2
	if len(s) <= cut {
		return encode(s)
	}
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return encode(fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s)))
}

// lookBehind is the look behind an entry.
func lookBehind(e audit.Entry) agreed {
	a := agreed{at: e.Time, hash: hashOf(e.After)}
	var d detail
	if json.Unmarshal(e.Detail, &d) == nil && !d.Look.After.IsZero() {
		a.at, a.requests = d.Look.After, d.Requests.After
	}
	return a
}
