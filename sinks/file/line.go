package file

import (
	"github.com/auditrelay/auditrelay/internal/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// lineStart begins every line: it tells a torn one from somebody else's.
const lineStart = cloudevents.Start

// AppendLine appends e to dst as a delivery writes it: one line of the JSON event
// format of CloudEvents 1.0.2, with its newline.
func AppendLine(dst []byte, e *relay.Event) []byte {
	return append(cloudevents.AppendJSON(dst, e), '\n')
}
