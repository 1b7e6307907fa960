package file

import (
	"slices"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// lineStart is how every CloudEvents line begins. It tells a torn line of ours from somebody
// else's.
const lineStart = cloudevents.Start

// AppendLine appends e to dst as a delivery writes it: one line of the JSON event
// format of CloudEvents 1.0.2, with its newline.
func AppendLine(dst []byte, e *relay.Event) []byte {
	return append(cloudevents.AppendJSON(dst, e), '\n')
}

// appendLine appends e in the sink's form.
func (s *Sink) appendLine(dst []byte, e *relay.Event) []byte {
	if !s.opts.Bodies {
		return append(s.json.Append(dst, e), '\n')
	}
	return append(append(dst, e.Body...), '\n')
}

// ours reports whether this sink wrote the start of a torn line, perhaps before its form was
// changed.
func (s *Sink) ours(torn []byte) bool {
	return slices.ContainsFunc([]string{lineStart, s.opts.BodyStart}, func(start string) bool {
		n := min(len(torn), len(start))
		return start != "" && start[:n] == string(torn[:n])
	})
}
