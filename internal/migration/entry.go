package migration

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// The types and the subject of the entries about a run.
const (
	TypeStarted = "migration.started"
	TypeEnded   = "migration.ended"
	Subject     = "migration"
)

// Note is the Detail of both entries. It has numbers and the API's error types, and nothing of a
// row.
type Note struct {
	Migration string `json:"migration"`
	Summary   string `json:"summary"`
	Severity  string `json:"severity"`
	Reason    string `json:"reason,omitempty"` // of the person
	Plan      *Plan  `json:"plan,omitempty"`
	// Until is when the run will have ended, by twice its own estimate.
	Until time.Time `json:"expected_until,omitzero"`
	// Outcome and Result are of the end: "done", or "partial".
	Outcome string  `json:"outcome,omitempty"`
	Result  *Result `json:"result,omitempty"`
}

// grace is for how long events of a run come after its end.
const grace = 10 * time.Minute

// Starts is the note of a run that begins.
func (r *Run) Starts(reason string) Note {
	p := &r.File.Plan
	takes := time.Duration(p.Seconds * float64(time.Second))
	return Note{
		Migration: r.File.Migration, Severity: "high", Reason: reason, Plan: p, Until: time.Now().Add(2*takes + grace).UTC(),
		Summary: fmt.Sprintf("a migration begins: %d requests, for a file of %s", p.Total, countsText(Types, p.Rows)),
	}
}

// Ends is the note of its end.
func (n Note) Ends(result *Result) Note {
	n.Result, n.Plan, n.Until, n.Outcome, n.Severity = result, nil, time.Time{}, "done", "medium"
	if result.Open > 0 {
		n.Outcome, n.Severity = "partial", "high"
	}
	n.Summary = "a migration has ended: " + countsText(Outcomes, result.Outcomes)
	return n
}

func countsText[K ~string](order []K, counts map[K]int) string {
	var parts []string
	for _, name := range order {
		if n := counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(name), "_", " ")))
		}
	}
	return strings.Join(parts, ", ")
}

// Flood are the events that a run causes in an environment's event log.
type Flood struct {
	Since, Until time.Time
	By           string
}

// FloodOf reads an environment's newest entry of a run. A run that was killed has no end, and the
// expected one counts.
func FloodOf(e audit.Entry) Flood {
	var d struct {
		Until  time.Time    `json:"expected_until"`
		Person audit.Person `json:"person"`
	}
	_ = json.Unmarshal(e.Detail, &d) // one of another form explains nothing
	if e.Type == TypeEnded {
		d.Until = e.Time.Add(grace)
	}
	return Flood{e.Time, d.Until, d.Person.String()}
}

// Text explains them, after a semicolon; it is empty where no run is under way.
func (f Flood) Text(now time.Time) string {
	if now.After(f.Until) || now.Before(f.Since) {
		return ""
	}
	return fmt.Sprintf("; a migration by %s, at %s, explains far more events than usual", f.By, f.Since.UTC().Format(time.DateTime+" MST"))
}
