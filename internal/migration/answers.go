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
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unique"

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
// answers wherever they stand. The journal has neither hashes of passwords nor tokens.
type answer struct {
	Row            string    `json:"row,omitempty"`
	Line           int       `json:"line,omitempty"`
	At             time.Time `json:"at,omitzero"`
	Outcome        Outcome   `json:"outcome"`
	Lost           bool      `json:"answer_lost,omitempty"` // an answer before this one
	Status         int       `json:"status,omitempty"`
	RequestID      string    `json:"request_id,omitempty"`
	Slug           string    `json:"organization_slug,omitempty"` // of an organization that was made
	OrganizationID string    `json:"organization_id,omitempty"`
	Kind           string    `json:"kind,omitempty"` // of a failure: its error_type
	Reason         string    `json:"reason,omitempty"`
}

func (f *File) journal() string { return filepath.Join(f.dir, "answers.jsonl") }

// Refused is the file of the rows that are refused, unsure or cannot be sent, with their lines and
// the reasons, and without secrets.
func (f *File) Refused() string { return filepath.Join(f.dir, "refused.jsonl") }

// read reads the journal, if there is one.
func (f *File) read() error {
	in, err := durable.Open(f.journal())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var v answer
		err = errors.Join(err, json.Unmarshal(text, &v))
		row, _ := hex.DecodeString(v.Row)
		if err == nil && len(row) != len(name{}) {
			err = errors.New("it names no row")
		}
		if err != nil {
			return fmt.Errorf("line %d of %s is damaged: restore it from a copy, as rows may be sent twice without it: %w", n, f.journal(), err)
		}
		f.sound += int64(len(text))
		f.take(name(row), v)
	}
}

// take keeps what counts later; rows with the same share it.
func (f *File) take(row name, v answer) {
	if v.Slug != "" {
		f.ids[v.Slug] = v.OrganizationID
	}
	f.rows[row] = unique.Make(answer{Outcome: v.Outcome, Lost: v.Lost, Kind: v.Kind, Reason: v.Reason})
}

// of is what is known of a row.
func (f *File) of(r *Row) answer {
	if v, ok := f.rows[r.sum]; ok {
		return v.Value()
	}
	return answer{Outcome: NotSent}
}

// note takes an answer. It is durable after the next flush.
func (f *File) note(r *Row, v answer) {
	v.Row, v.Line, v.At = hex.EncodeToString(r.sum[:]), r.line, time.Now().UTC()
	f.take(r.sum, v)
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
		_ = f.file.Close() // of what was written, the next flush cuts off a part of a line
		f.file = nil
		return fmt.Errorf("keep the answers in %s: %w", f.journal(), err)
	}
	f.sound += int64(len(f.pending))
	f.pending = f.pending[:0]
	return nil
}

// projectFile names the project that the answers are of.
func (f *File) projectFile() string { return filepath.Join(f.dir, "project") }

// IsOf refuses the id of another project than that of the answers: they say nothing of it.
func (f *File) IsOf(project string) error {
	kept, err := durable.ReadFile(f.projectFile())
	if was := strings.TrimSpace(string(kept)); err == nil && was != project {
		return fmt.Errorf("the answers in %s are of the project %s: for %s, give a copy of %s with another name", f.dir, was, project, f.path)
	}
	if errors.Is(err, fs.ErrNotExist) { // no row has an answer yet
		err = nil
	}
	return err
}

// bind keeps which project the answers are of, once there is one: an id that was mistyped gets none.
// A crash before it leaves answers of any project.
func (f *File) bind(project string) error {
	if f.bound {
		return nil
	}
	err := durable.MakeDir(f.dir)
	if err == nil {
		err = durable.WriteFile(f.projectFile(), []byte(project+"\n"))
	}
	f.bound = err == nil
	return err
}

// Open reads what was answered before, and checks all rows of a file. Its error names the first rows
// that are wrong. passwords is [Shared] or [Scoped], or empty where the file has none.
// again: refused rows are sent again though they were not mended, as their cause was not in them.
func Open(path, passwords string, again bool) (*File, error) {
	f := &File{
		Plan: Plan{Passwords: passwords, Rows: map[string]int{}}, path: path, dir: path + ".migration", again: again,
		slugs: map[string]int{}, ids: map[string]string{}, rows: map[name]unique.Handle[answer]{},
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	_, err := f.Count(io.Discard)
	return f, err
}

// walk visits the rows with calls in the order of the types.
func (f *File) walk(visit func(*Row, answer) error) error {
	for _, kind := range Types {
		if f.Plan.Rows[kind] == 0 {
			continue
		}
		err := f.each(func(r *Row, err error) error {
			if err != nil || r.Type != kind || !r.isSent() {
				return err
			}
			return visit(r, f.of(r))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return nil
}

// isLeft reports whether a run sends the row.
func (f *File) isLeft(r *Row, v answer) bool {
	switch v.Outcome {
	case Done, Found:
		return false
	case Refused:
		return f.again
	case Unsure: // another call for a session would make another one
		return r.Type != TypeSession
	}
	return true
}

// organization is the id of a row's organization, as far as it is known.
func (f *File) organization(r *Row) string {
	return cmp.Or(r.OrganizationID, f.ids[r.OrganizationSlug])
}

// blocked says why a row cannot be sent; "" where it can.
func (f *File) blocked(r *Row) string {
	if f.organization(r) != "" || r.Type == TypeOrganization || !r.ofOrganization() {
		return ""
	}
	return fmt.Sprintf("the id of its organization, line %d, is not known", f.slugs[r.OrganizationSlug])
}

// Result counts the rows by their outcome, and the refusals by the API's error_type.
type Result struct {
	Outcomes map[Outcome]int `json:"outcomes"`
	Refusals map[string]int  `json:"refusals,omitempty"`
	// Lost are the rows with an outcome for which an answer was lost.
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
	err := f.walk(func(r *Row, v answer) error {
		if f.isLeft(r, v) {
			f.Plan.Calls[r.Type]++
			f.Plan.Total++
		}
		switch v.Outcome {
		case sent:
			v.Outcome, v.Reason = Unsure, "the run ended before its answer was kept; the next run sends it again, unless it is a session"
		case NotSent:
			v.Reason = f.blocked(r)
		case Refused:
			result.Refusals[v.Kind]++
		}
		result.Outcomes[v.Outcome]++
		if v.Lost {
			result.Lost++
		}
		if v.Outcome == Done || v.Outcome == Found {
			return nil
		}
		if result.Open++; v.Reason == "" { // its turn has not come
			return nil
		}
		return lines.Encode(map[string]any{"line": r.line, "outcome": v.Outcome, "reason": v.Reason, "row": r}) // secrets are redacted
	})
	f.Plan.Seconds = float64(f.Plan.Total) / float64(f.Plan.Flavour.Limit)
	return result, errors.Join(err, out.Flush())
}
