package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/control/console"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	reports := []console.Progress{
		{Unit: "records"},
		{Unit: "records", Done: 5, Total: 10, Delivered: 40, Failing: "connection refused", Notes: []string{"cut"}},
		{Unit: "records", Done: 5, Total: 10, Delivered: 40, Failing: "connection refused", Notes: []string{"cut"}},
		{Unit: "records", Done: 10, Total: 10, Delivered: 79, Refused: 1, Notes: []string{"cut"}},
	}
	show := func(terminal bool) string {
		var out strings.Builder
		p := newProgress(&out)
		p.terminal = terminal
		for i := range reports {
			p.report(&reports[i])
		}
		p.end()
		return out.String()
	}
	const retried = "the sink fails; retrying until it succeeds (Ctrl-C ends): connection refused\n"
	assert.Equal(t, "note: cut\n"+retried, show(false), "plain lines, each once")
	const clear = "\r\x1b[K"
	half := clear + "[============            ]  50%  5 of 10 records, 40 delivered"
	assert.Equal(t, clear+"[                        ]   0%  0 of 0 records"+clear+"note: cut\n"+retried+half+half+
		clear+"[========================] 100%  10 of 10 records, 79 delivered, 1 refused"+clear, show(true))
}
