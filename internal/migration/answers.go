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

// Answers is the journal of what was answered, in the folder FILE.migration next to the file. It
// names a row by a hash of its text: so a row that was mended is another one, and the others keep
// their answers wherever they stand. It has neither hashes of passwords nor tokens.
type Answers struct {
	// Migration is its name in the trail, and the salt of the rows' names.
	Migration string

	dir     string
	file    *os.File // nil: it is only read
	pending []byte   // lines that are not written yet
	rows    map[name]*answer
	bare    map[Outcome]*answer // shared by rows without more
}

// answer is a line of the journal. The first line has the first member alone.
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

func (a *Answers) path() string { return filepath.Join(a.dir, "answers.jsonl") }

// Refused is the file of the rows that are refused, unsure or cannot be sent, with their lines and
// the reasons, and without secrets.
func (a *Answers) Refused() string { return filepath.Join(a.dir, "refused.jsonl") }

// write opens the journal to write, and makes it where there is none.
func (a *Answers) write() error {
	if a.Migration == "" {
		head, _ := json.Marshal(answer{Migration: nuid.Next()}) // it always marshals
		// A crash before this has ended leaves no journal, and nothing was sent.
		if err := durable.WriteFiles([]durable.File{{Path: a.path(), Data: append(head, '\n')}}); err != nil {
			return err
		}
	}
	sound, err := a.read()
	if err == nil {
		a.file, err = os.OpenFile(a.path(), os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		return err
	}
	// What follows the last line end was torn by a crash. If it was to say that a row is sent, that
	// row was not; if it was an answer, the line before says that the answer is lost.
	return errors.Join(a.file.Truncate(sound), a.file.Sync())
}

// read reads the journal, if there is one, and returns the length of its whole lines.
func (a *Answers) read() (sound int64, err error) {
	in, err := durable.Open(a.path())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }() // it was only read
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return sound, nil
		}
		var v answer
		if err = errors.Join(err, json.Unmarshal(text, &v)); err != nil || (n == 1) != (v.Migration != "") {
			return 0, fmt.Errorf("line %d of %s is damaged: restore it from a copy, as rows may be sent twice without it: %w", n, a.path(), err)
		}
		sound += int64(len(text))
		if n == 1 {
			a.Migration = v.Migration
			continue
		}
		row, _ := hex.DecodeString(v.Row) // a wrong one names no row
		a.take(name(append(row, make([]byte, len(name{}))...)), v)
	}
}

func (a *Answers) take(row name, v answer) {
	if v.OrganizationID != "" || v.Reason != "" {
		a.rows[row] = &v
		return
	}
	if a.bare[v.Outcome] == nil {
		a.bare[v.Outcome] = &answer{Outcome: v.Outcome}
	}
	a.rows[row] = a.bare[v.Outcome]
}

func (a *Answers) name(r *Row) name { return nameOf(a.Migration, string(r.sum[:])) }

// of is what is known of a row.
func (a *Answers) of(r *Row) answer {
	if v := a.rows[a.name(r)]; v != nil {
		return *v
	}
	return answer{Outcome: NotSent}
}

// sending says durably that a row is about to be sent, and what the row before was answered: one
// sync serves both. A crash before it returns loses that one answer, and its row stays sent.
func (a *Answers) sending(r *Row) error {
	a.note(r, answer{Outcome: sent})
	return a.flush()
}

// note takes an answer. It is durable after the next sending or flush.
func (a *Answers) note(r *Row, v answer) {
	row := a.name(r)
	v.Row, v.Line, v.At = hex.EncodeToString(row[:]), r.line, time.Now().UTC()
	a.take(row, v)
	line, _ := json.Marshal(v) // it always marshals
	a.pending = append(append(a.pending, line...), '\n')
}

func (a *Answers) flush() error {
	_, err := a.file.Write(a.pending)
	if err = errors.Join(err, a.file.Sync()); err != nil {
		// The run ends, and the next one reads what is there.
		return fmt.Errorf("keep the answers in %s: %w", a.path(), err)
	}
	a.pending = a.pending[:0]
	return nil
}
