package nats

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
			s := newSink(t, lying(t, answer), nil)
			err := s.Deliver(t.Context(), relaytest.Events(3))
			require.ErrorContains(t, err, "it is no NATS server")
			assert.False(t, relay.IsPermanent(err))
		})
	}
}

// lying listens, greets as a server does, and gives an answer to the first event.
func lying(t *testing.T, answer string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go lie(c, answer)
		}
	}()
	return l.Addr().String()
}

func lie(c net.Conn, answer string) {
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, `INFO {"server_id":"x","version":"2.11.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch {
		case strings.HasPrefix(lines.Text(), "PING"):
			_, _ = io.WriteString(c, "PONG\r\n")
		case strings.HasPrefix(lines.Text(), "HPUB"):
			_, _ = io.WriteString(c, answer)
		}
	}
}

// FuzzGuarded checks that pieces of any size are followed as the whole is.
func FuzzGuarded(f *testing.F) {
	f.Add([]byte("INFO {}\r\nMSG x 1 3\r\nMSG\r\nPING\r\nHMSG x 1 2 4\r\nabcd\r\n"), uint8(3))
	f.Add([]byte("MSG x 1 99999999\r\n"), uint8(1))
	f.Add([]byte("MSG x 1 0\n\nMSG"), uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		whole, cut := guarded{}, guarded{}
		want := whole.check(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(int(chunk)+1, len(rest))
			got = cut.check(rest[:n])
			rest = rest[n:]
		}
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
		assert.LessOrEqual(t, whole.skip, maxMessage+1)
		if want == nil {
			assert.Equal(t, whole.skip, cut.skip)
			assert.Equal(t, whole.tail, cut.tail)
			assert.Equal(t, string(whole.line), string(cut.line))
		}
	})
}
