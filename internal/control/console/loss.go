package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// Loss means events will not reach a sink, or a credential no longer pushes, because
// somebody says so. Promise 2 wants them accounted for all the same.
type Loss struct {
	Type                 string // "deadletters.discarded", "sink.retired", "journal.damage_accepted"
	Project, Environment string // of the events; empty if they are of several
	Sink                 string // empty if it is every sink
	Subject              string // empty for the sink
	Person               workspace.Person
	Detail               any // encoded as a JSON object
}

// NoProject stands in the trail for entries without a single project; no slug is so.
const NoProject = "-"

// Entry is the entry of the trail that accounts for the loss. Its detail has the person as one more
// member.
func (l Loss) Entry() (audit.Entry, error) {
	subject := cmp.Or(l.Subject, "journal")
	if l.Sink != "" {
		subject = "sinks/" + l.Sink
	}
	e := audit.Entry{Type: l.Type, Project: cmp.Or(l.Project, NoProject), Environment: l.Environment, Subject: subject, Time: time.Now()}
	raw, err := json.Marshal(l.Detail)
	members := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &members)
	}
	if err == nil {
		members["person"], err = json.Marshal(l.Person)
	}
	if err == nil {
		e.Detail, err = json.Marshal(members)
	}
	if err != nil {
		return e, fmt.Errorf("encode the audit entry: %w", err)
	}
	return e, nil
}
