package file

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestLineStart(t *testing.T) {
	t.Parallel()
	assert.True(t, bytes.HasPrefix(AppendLine(nil, &relay.Event{}), []byte(lineStart)))
}

func FuzzLine(f *testing.F) {
	f.Add("id", "type", "subject", "application/json", []byte(`{"a":1}`))
	f.Add("a\"b\\", "\n\r\t\x00", "\u2028\u0085é", "text/plain", []byte("two\nlines"))
	f.Add("", "", "", "", []byte("\xff"))
	f.Add("", "", "", "x+json", []byte(" 1 "))
	f.Add("\xc5", "\x85", "", "", []byte("1"))
	f.Fuzz(func(t *testing.T, id, kind, subject, contentType string, body []byte) {
		e := relay.Event{ID: id, Type: kind, Subject: subject, ContentType: contentType, Body: body}
		line := AppendLine(nil, &e)
		require.Equal(t, len(line)-1, bytes.IndexAny(line, "\n\r"), "one line")
		require.True(t, json.Valid(line))
		r, err := readback.ParseLine(line)
		require.NoError(t, err)
		require.Equal(t, string(body), string(r.Body))
		// Each is checked by itself, since two halves of a character are valid only together.
		if utf8.ValidString(id) && utf8.ValidString(kind) && utf8.ValidString(subject) && utf8.ValidString(contentType) {
			require.Equal(t, id, r.ID())
			require.Equal(t, kind, r.Attributes["type"])
			require.Equal(t, subject, r.Attributes["subject"])
			require.Equal(t, contentType, r.Attributes["datacontenttype"])
		}
	})
}

func FuzzParseLine(f *testing.F) {
	e := relaytest.Events(1)[0]
	f.Add(AppendLine(nil, &e))
	f.Add([]byte(`{"id":1}`))
	f.Add([]byte(`{"data_base64":"*"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(_ *testing.T, line []byte) { _, _ = readback.ParseLine(line) })
}

func BenchmarkAppendLine(b *testing.B) {
	events, buf := relaytest.Events(1000), []byte(nil)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		buf = AppendLine(buf[:0], &events[i%1000])
	}
}
