// Package migration moves organizations, members, password hashes and sessions of another
// provider into a project, by the service's second API. That API has a host and a key of its
// own, a project's id and secret. A management key never comes here.
//
// The rows stand in a file, one JSON object a line (see [Row]). [Open] checks all of them before
// the first call. A [Run] issues one request at a time, organizations first, and in no second
// more than the API permits. [Answers] keeps durably what was answered, so that a run goes on
// after a kill without a second call for an answered row.
//
// Memory holds a few dozen bytes for each row, and each organization's slug and id, but no rows.
package migration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Options say how to open a file.
type Options struct {
	// Passwords is [Shared] or [Scoped], or empty where the file has none.
	Passwords string
	// Write: the journal of answers is opened to write. One process at a time may.
	Write bool
	// Again: refused rows are sent again though they were not mended, since the cause was not in
	// them.
	Again bool
}

// Open checks all rows of a file. What is wrong with them is in the plan. If nothing is, it reads
// what was answered before.
func Open(path string, o Options) (*File, error) {
	f := &File{
		path: path, slugs: map[string]int{}, Plan: Plan{Passwords: o.Passwords, Rows: map[string]int{}, Calls: map[string]int{}},
		Answers: &Answers{dir: path + ".migration", rows: map[name]*answer{}, bare: map[Outcome]*answer{}},
	}
	if err := f.check(); err != nil || f.Plan.Wrong > 0 {
		return f, err
	}
	_, err := f.read()
	if err == nil && o.Write {
		err = f.write()
	}
	if err != nil {
		return f, err
	}
	err = f.walk(func(s state) error {
		if s.isLeft(o.Again) {
			f.Plan.Calls[s.row.Type]++
			f.Plan.Total++
		}
		return nil
	})
	f.Plan.Seconds = float64(f.Plan.Total) / float64(f.Plan.Flavour.Limit)
	return f, err
}

// Close ends the use of the journal.
func (f *File) Close() error { return f.file.Close() }

// state is what is known of a row that is sent, or was.
type state struct {
	answer
	row          *Row
	organization string // its id, empty while it is not known
	slugLine     int    // the line of its organization
}

// walk visits the rows with calls in the order of the types. When it comes to an organization's
// rows, the answer for it counts that there is by then.
func (f *File) walk(visit func(state) error) error {
	ids := map[string]string{}
	for _, kind := range Types {
		if f.Plan.Rows[kind] == 0 {
			continue
		}
		err := f.each(func(row *Row, err error) error {
			if err != nil || row.Type != kind {
				return err
			}
			s := state{answer: f.of(row), row: row, organization: row.OrganizationID, slugLine: f.slugs[row.OrganizationSlug]}
			if kind != TypeOrganization && row.OrganizationSlug != "" {
				s.organization = ids[row.OrganizationSlug]
			}
			if row.isSent() {
				err = visit(s)
			}
			if kind == TypeOrganization {
				ids[row.OrganizationSlug] = row.OrganizationID + f.of(row).OrganizationID // it has one of them
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

// isLeft reports whether a run sends the row. again: also where it was refused.
func (s *state) isLeft(again bool) bool {
	switch s.Outcome {
	case Done, Found:
		return false
	case Refused:
		return again
	case Unsure: // another call for a session would make another one
		return s.row.Type != TypeSession
	}
	return true
}

// blocked says why a row cannot be sent; "" where it can.
func (s *state) blocked() string {
	if s.organization != "" || s.row.Type == TypeOrganization || !s.row.ofOrganization() {
		return ""
	}
	return fmt.Sprintf("the id of its organization, line %d, is not known", s.slugLine)
}

// Result counts the rows by their outcome, and the refusals by the API's error_type.
type Result struct {
	Outcomes map[Outcome]int `json:"outcomes"`
	Refusals map[string]int  `json:"refusals,omitempty"`
	// Lost are the rows of which an answer was lost, in a run or at the end of the one before.
	Lost int `json:"answers_lost,omitempty"`
	// Open are the rows that are not done.
	Open int `json:"open"`
}

// Count counts the rows, and writes those that are refused, unsure or cannot be sent, a line for
// each.
func (f *File) Count(refused io.Writer) (*Result, error) {
	result := &Result{Outcomes: map[Outcome]int{}, Refusals: map[string]int{}}
	out := bufio.NewWriter(refused)
	lines := json.NewEncoder(out)
	err := f.walk(func(s state) error {
		switch s.Outcome {
		case sent:
			s.Outcome, s.Reason = Unsure, "the run ended before its answer was kept; the next run sends it again, unless it is a session"
		case NotSent:
			s.Reason = s.blocked()
		case Refused:
			result.Refusals[s.Kind]++
		}
		result.Outcomes[s.Outcome]++
		if s.Outcome == Done || s.Outcome == Found {
			return nil
		}
		if result.Open++; s.Reason == "" { // its turn has not come
			return nil
		}
		return lines.Encode(map[string]any{"line": s.row.line, "outcome": s.Outcome, "reason": s.Reason, "row": s.row}) // secrets are redacted
	})
	return result, errors.Join(err, out.Flush())
}
