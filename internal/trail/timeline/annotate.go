package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

const (
	// TypeAnnotated marks an entry about another one, by its reviewer.
	TypeAnnotated = "trail.annotated"
	// annotationSubject is a subject of its own: an annotation never becomes the newest
	// entry of a setting.
	annotationSubject = "trail_annotations"
)

// maxField bounds each text of an annotation, in bytes.
const maxField = 4 << 10

// Annotation is the Detail of a "trail.annotated" entry.
type Annotation struct {
	// Index and Leaf are the reviewed entry's place and Merkle leaf hash (base64).
	Index int64  `json:"index"`
	Leaf  string `json:"leaf"`

	Ticket   string `json:"ticket,omitempty"`
	Reviewer string `json:"reviewer"`
	Note     string `json:"note,omitempty"`
	// The person who entered it, as the relay knows. The Reviewer is as this person says.
	audit.Person
}

// Check names a missing or overlong field.
func (a Annotation) Check() error {
	if strings.TrimSpace(a.Reviewer) == "" {
		return errors.New("an annotation needs a reviewer")
	}
	for name, text := range map[string]string{"ticket": a.Ticket, "reviewer": a.Reviewer, "note": a.Note, "user": a.User, "host": a.Host} {
		if len(text) > maxField {
			return fmt.Errorf("the %s has %d bytes, the limit is %d", name, len(text), maxField)
		}
	}
	return nil
}

// Entry is the entry for an annotation of another.
func (a Annotation) Entry(of audit.Recorded) (audit.Entry, error) {
	a.Index, a.Leaf = of.Index, of.Leaf.String()
	detail, err := json.Marshal(a)
	if err != nil {
		return audit.Entry{}, fmt.Errorf("encode the annotation: %w", err)
	}
	return audit.Entry{
		Type: TypeAnnotated, Project: of.Project, Environment: of.Environment, Subject: annotationSubject, Detail: detail,
	}, nil
}

func annotationOf(e *audit.Entry) (a Annotation, ok bool) {
	if e.Type != TypeAnnotated || e.Subject != annotationSubject {
		return a, false
	}
	return a, json.Unmarshal(e.Detail, &a) == nil && a.Index >= 0
}

func (a Annotation) sentence() string {
	claimed := ""
	if a.Reviewer != a.User {
		claimed = " (claimed)"
	}
	text := fmt.Sprintf("%s%s reviewed entry %d", a.Reviewer, claimed, a.Index)
	if a.Ticket != "" {
		text += ", ticket " + a.Ticket
	}
	if a.Note != "" {
		text += ": " + strings.TrimSpace(a.Note)
	}
	return text
}
