package ingest

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/wire"
	"github.com/auditrelay/auditrelay/relay"
)

// Stream implements wire.Handler.
func (p *push) Stream(labels []relay.Label) error {
	p.batch.group.Labels = labels
	p.batch.content = "" // the next entry opens a group
	return nil
}

// Entry implements wire.Handler.
func (p *push) Entry(at wire.Place, e *wire.Entry) error {
	if err := p.report.count(1); err != nil {
		return err
	}
	if len(e.Body) > int(p.limits.LineBytes) {
		why := fmt.Errorf("the line has %d bytes, at most %d are taken", len(e.Body), p.limits.LineBytes)
		p.report.refuse(1, wire.Problem{Place: at, Err: why})
		return nil
	}
	p.batch.entry.Time, p.batch.entry.Labels = e.Time, e.Labels
	p.ids.id = p.ids.id[:0]
	if !e.Timed {
		// Without a time, two events of the same text would have one ID. Their arrival
		// tells them apart.
		p.batch.entry.Time = p.batch.group.Received.UnixNano()
		p.ids.id = appendOrdinal(p.ids.id, at.Entry)
	}
	return p.add(e.Body)
}

// Refuse implements wire.Handler.
func (p *push) Refuse(problem wire.Problem) error {
	p.report.refuse(problem.Entries, problem)
	return p.report.count(max(problem.Entries, 1))
}

// lokiError gives a push without streams the same status as Loki does.
func lokiError(err error) error {
	r := &refusal{status: http.StatusUnprocessableEntity, reason: reasonEmpty}
	switch {
	case !errors.Is(err, wire.ErrNoStreams):
		return err
	case errors.Is(err, wire.ErrOtherForm):
		r.reason = "malformed"
	}
	r.text = err.Error()
	return r
}

// reasonEmpty is that of a push without anything to take, such as the trial of a connection. It is not in
// the book of arrivals, since nothing is lost.
const reasonEmpty = "empty"
