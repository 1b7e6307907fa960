package settings

import (
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

const (
	maxChanges = 500 // listed in one entry
	maxShown   = 512 // bytes of a value shown in a change
)

// detail is the Detail of an entry about a setting's state.
type detail struct {
	workspace.Attribution
	// Reading is the meaning of the change: summary, direction, severity and statements. It is
	// nil without a change.
	*meaning.Reading
	// Changes are for reading: long values are cut, since before and after
	// have them whole. Omitted counts those beyond 500.
	Changes []jsondiff.Change `json:"changes,omitempty"`
	Omitted int               `json:"omitted,omitempty"`
	// Unsure: entries after Before are damaged and may have been of this setting, so
	// there may have been changes between.
	Unsure bool `json:"unsure,omitempty"`
	// Notes say what the relay assumed of the API's answer: see [plausible].
	Notes []string `json:"notes,omitempty"`
	// Look is when the look began and ended.
	Look audit.Window `json:"look"`
	// Requests are the ids of the reads of the states before and after.
	Requests workspace.Requests `json:"request_ids,omitzero"`
}

func (d detail) with(changes jsondiff.Changes) detail {
	listed := min(len(changes.List), maxChanges)
	d.Omitted = len(changes.List) - listed + changes.More
	for _, c := range changes.List[:listed] {
		d.Changes = append(d.Changes, jsondiff.Change{Path: c.Path, Old: jsondiff.Shorten(c.Old, maxShown), New: jsondiff.Shorten(c.New, maxShown)})
	}
	return d
}
