// Package migration moves organizations, members, password hashes and sessions of another
// provider into a project, by the service's second API. That API has a host and a key of its
// own, a project's id and secret. A management key never comes here.
//
// The rows stand in a file, one JSON object a line (see [Row]). [Open] checks all of them before
// the first call. A [Run] issues one request at a time, organizations first, and in no second
// more than the API permits. A journal keeps durably what was answered, so that a run goes on
// after a kill without a second call for an answered row.
//
// Memory holds a few dozen bytes for each row, and each organization's slug and id, but no rows.
package migration

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nuid"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// Outcome is what is known of a row.
type Outcome string

// The outcomes.
const (
	// Done: the API took it.
	Done Outcome = "done"
	// Found: an answer was lost, and the API then refused the same call as a duplicate.
	Found Outcome = "found"
	// Refused: the API refused it, and nothing was done.
	Refused Outcome = "refused"
	// Unsure: its answer was lost, and nothing tells whether it was done.
	Unsure Outcome = "unsure"
	// NotSent: no request of it has had an effect.
	NotSent Outcome = "not_sent"
	// sent: it is under way. A process that finds it so knows that its answer was lost.
	sent Outcome = "sent"
)

// Outcomes are those that are told.
var Outcomes = []Outcome{Done, Found, Refused, Unsure, NotSent}

// answer is a line of the journal of answers, in the folder FILE.migration next to the file. It names
// a row by a hash of its text: so a row that was mended is another one, and the others keep their
// answers wherever they stand. The journal has neither hashes of passwords nor tokens. Its first
// line has the first member alone.
type answer struct {
	Migration string `json:"migration,omitempty"`

	Row            string    `json:"row,omitempty"`
	Line           int       `json:"line,omitempty"`
	At             time.Time `json:"at,omitzero"`
	Outcome        Outcome   `json:"outcome,omitempty"`
	Status         int       `json:"status,omitempty"`
	RequestID      string    `json:"request_id,omitempty"`
	OrganizationID string    `json:"organization_id,omitempty"`
	Kind           string    `json:"kind,omitempty"` // of a failure: its error_type
	Reason         string    `json:"reason,omitempty"`
}

func (f *File) journal() string { return filepath.Join(f.dir, "answers.jsonl") }

// Refused is the file of the rows that are refused, unsure or cannot be sent, with their lines and
// the reasons, and without secrets.
func (f *File) Refused() string { return filepath.Join(f.dir, "refused.jsonl") }

// read reads the journal. Where there is none, it begins one, whose first line goes with the next.
func (f *File) read() error {
	in, err := durable.Open(f.journal())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		defer func() { _ = in.Close() }() // it was only read
		err = f.readLines(bufio.NewReader(in))
	}
	if f.sound == 0 && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		f.Migration = nuid.Next()
		head, _ := json.Marshal(answer{Migration: f.Migration}) // it always marshals
		f.pending, err = append(head, '\n'), nil
	}
	return err
}

func (f *File) readLines(lines *bufio.Reader) error {
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var v answer
		if err = errors.Join(err, json.Unmarshal(text, &v)); err != nil || (n == 1) != (v.Migration != "") {
			return fmt.Errorf("line %d of %s is damaged: restore it from a copy, as rows may be sent twice without it: %w", n, f.journal(), err)
		}
		f.sound += int64(len(text))
		if n == 1 {
			f.Migration = v.Migration
			continue
		}
		row, _ := hex.DecodeString(v.Row) // a wrong one names no row
		f.take(name(append(row, make([]byte, len(name{}))...)), v)
	}
}

func (f *File) take(row name, v answer) {
	if v.OrganizationID != "" || v.Reason != "" {
		f.rows[row] = &v
		return
	}
	if f.bare[v.Outcome] == nil {
		f.bare[v.Outcome] = &answer{Outcome: v.Outcome}
	}
	f.rows[row] = f.bare[v.Outcome]
}

func (f *File) name(r *Row) name { return nameOf(f.Migration, string(r.sum[:])) }

// of is what is known of a row.
func (f *File) of(r *Row) answer {
	if v := f.rows[f.name(r)]; v != nil {
		return *v
	}
	return answer{Outcome: NotSent}
}

// sending says durably that a row is about to be sent, and what the row before was answered: one
// sync serves both. A crash before it returns loses that one answer, and its row stays sent.
func (f *File) sending(r *Row) error {
	f.note(r, answer{Outcome: sent})
	return f.flush()
}

// note takes an answer. It is durable after the next sending or flush.
func (f *File) note(r *Row, v answer) {
	row := f.name(r)
	v.Row, v.Line, v.At = hex.EncodeToString(row[:]), r.line, time.Now().UTC()
	f.take(row, v)
	line, _ := json.Marshal(v) // it always marshals
	f.pending = append(append(f.pending, line...), '\n')
}

// flush writes durably what was noted. After an error the run ends, and the next one reads what is
// there.
func (f *File) flush() (err error) {
	if len(f.pending) == 0 {
		return nil
	}
	if f.file == nil {
		if err = durable.MakeDir(f.dir); err == nil {
			f.file, err = os.OpenFile(f.journal(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		}
		if err == nil {
			// What follows the last line end was torn by a crash. If it was to say that a row is sent,
			// that row was not; if it was an answer, the line before says that the answer is lost.
			err = errors.Join(f.file.Truncate(f.sound), durable.SyncDir(f.dir))
		}
	}
	if err == nil {
		_, err = f.file.Write(f.pending)
		err = errors.Join(err, f.file.Sync())
	}
	if err != nil {
		return fmt.Errorf("keep the answers in %s: %w", f.journal(), err)
	}
	f.pending = f.pending[:0]
	return nil
}

// Open checks all rows of a file. What is wrong with them is in the plan. If nothing is, it reads
// what was answered before. passwords is [Shared] or [Scoped], or empty where the file has none.
// again: refused rows are sent again though they were not mended, as their cause was not in them.
func Open(path, passwords string, again bool) (*File, error) {
	f := &File{
		path: path, dir: path + ".migration", again: again, Plan: Plan{Passwords: passwords, Rows: map[string]int{}},
		slugs: map[string]int{}, rows: map[name]*answer{}, bare: map[Outcome]*answer{},
	}
	if err := f.check(); err != nil || f.Plan.Wrong > 0 {
		return f, err
	}
	if err := f.read(); err != nil {
		return f, err
	}
	_, err := f.Count(io.Discard)
	return f, err
}

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

// isLeft reports whether a run sends the row.
func (f *File) isLeft(s state) bool {
	switch s.Outcome {
	case Done, Found:
		return false
	case Refused:
		return f.again
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

// Count counts the rows and the calls that are left, and writes the rows that are refused, unsure or
// cannot be sent, a line for each.
func (f *File) Count(refused io.Writer) (*Result, error) {
	f.Plan.Calls, f.Plan.Total = map[string]int{}, 0
	result := &Result{Outcomes: map[Outcome]int{}, Refusals: map[string]int{}}
	out := bufio.NewWriter(refused)
	lines := json.NewEncoder(out)
	err := f.walk(func(s state) error {
		if f.isLeft(s) {
			f.Plan.Calls[s.row.Type]++
			f.Plan.Total++
		}
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
	f.Plan.Seconds = float64(f.Plan.Total) / float64(f.Plan.Flavour.Limit)
	return result, errors.Join(err, out.Flush())
}
