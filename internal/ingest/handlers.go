package ingest

import (
	"errors"
	"net/http"

	"github.com/auditrelay/auditrelay/internal/wire/datadog"
	"github.com/auditrelay/auditrelay/internal/wire/loki"
	"github.com/auditrelay/auditrelay/relay"
)

// lokiHandler takes a Loki push's entries.
type lokiHandler push

func (h *lokiHandler) Stream(labels []relay.Label) error {
	h.batch.group.Labels = labels
	h.batch.content = "" // the next entry opens a group
	return nil
}

func (h *lokiHandler) Entry(at loki.Place, e *loki.Entry) error {
	p := (*push)(h)
	if err := p.report.count(1); err != nil {
		return err
	}
	if len(e.Line) > int(p.limits.LineBytes) {
		p.report.refuse(1, loki.Problem{Place: at, Err: errLine(len(e.Line), p.limits.LineBytes)})
		return nil
	}
	p.batch.entry.Time, p.batch.entry.Labels = e.Time, e.Meta
	p.ids.id = p.ids.id[:0]
	return p.add(e.Line)
}

func (h *lokiHandler) Refuse(problem loki.Problem) error {
	p := (*push)(h)
	p.report.refuse(problem.Entries, problem)
	return p.report.count(max(problem.Entries, 1))
}

// lokiError gives a push without streams the same status as Loki does.
func lokiError(err error) error {
	if errors.Is(err, loki.ErrNoStreams) {
		return &refusal{status: http.StatusUnprocessableEntity, reason: "empty", text: err.Error()}
	}
	return err
}

// datadogHandler takes a Datadog push's entries.
type datadogHandler push

func (h *datadogHandler) Entry(at int, e *datadog.Entry) error {
	p := (*push)(h)
	if err := p.report.count(1); err != nil {
		return err
	}
	if len(e.Body) > int(p.limits.LineBytes) {
		p.report.refuse(1, datadog.Problem{Entry: at, Err: errLine(len(e.Body), p.limits.LineBytes)})
		return nil
	}
	p.batch.entry.Time, p.batch.entry.Labels = e.Time, e.Labels
	p.ids.id = p.ids.id[:0]
	if !e.Timed {
		// Without a time, two events of the same text would have one ID. Their arrival
		// tells them apart.
		p.batch.entry.Time = p.batch.group.Received.UnixNano()
		p.ids.id = appendOrdinal(p.ids.id, at)
	}
	return p.add(e.Body)
}

func (h *datadogHandler) Refuse(problem datadog.Problem) error {
	p := (*push)(h)
	p.report.refuse(1, problem)
	return p.report.count(1)
}
