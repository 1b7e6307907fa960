package nats

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// A server may answer whatever it likes: the client would end the process over a length that memory
// does not have.
func TestAServerThatLiesAboutLengths(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no length that there is":  "MSG x 1 9223372036854775807\r\n",
		"more than any message":    "MSG x 1 1000000000000\r\n",
		"with headers":             "hmsg x 1 12 1000000000000\r\n",
		"after another message":    "MSG x 1 2\r\nab\r\nMSG x 1 9223372036854775807\r\n",
		"after one without an end": "MSG x 1 2\r\nab\nMSG y 1 3\nMSG x 1 9223372036854775807\r\n",
		"after an empty one":       "MSG x 1 0\r\n\r\nMSG x 1 9223372036854775807\r\n",
		"a line without an end":    strings.Repeat("MSG ", 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, natstest.Lying(t, answer), nil)
			err := s.Deliver(t.Context(), relaytest.Events(3))
			require.ErrorContains(t, err, "it is no NATS server")
			assert.False(t, relay.IsPermanent(err))
		})
	}
}
