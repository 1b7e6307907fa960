package datadog

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// FuzzAppend checks that for any body the entry is JSON, gives the body back byte for byte, and
// keeps its reserved attributes.
func FuzzAppend(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"a":1}`, `{"message":1,"timestamp":2,"ce":3,"event":4,"status":"x"}`, `{"a":"\ud83d\ude00<>&"}`,
		`{"a":"\ud800"}`, `{"\"":"\\ud800"}`, "\xff", "\u2028", `{"a":1,"a":2}`, `{"a.b":[{"c":1e400}],"":{}}`, ` {"a" : [ 1 , 2 ] } `,
	} {
		f.Add([]byte(body), "subject")
	}
	makers := map[string]*maker{}
	for _, where := range []string{"merged", "nested", "none"} {
		makers[where] = makerOf(f, config.Datadog{Attributes: where, Hostname: "{type}"})
	}
	f.Fuzz(func(t *testing.T, body []byte, subject string) {
		for _, m := range makers {
			e := eventOf(string(body))
			e.Subject, e.Type = subject, subject
			text, err := m.encoder().appendEntry(nil, e, sentAt())
			if err != nil {
				require.Greater(t, len(body)+3*len(subject), maxEntryBytes/8, "refused: %v", err)
				continue
			}
			require.LessOrEqual(t, len(text), maxEntryBytes)
			all := decode(t, text)
			got := struct {
				Message   string
				Timestamp json.Number
				CE        map[string]any
			}{}
			got.Message, _ = all["message"].(string)
			got.Timestamp, _ = all["timestamp"].(json.Number)
			got.CE, _ = all["ce"].(map[string]any)
			message := []byte(got.Message)
			if marks, _ := all["auditrelay"].(map[string]any); marks["encoding"] == "base64" {
				message, err = base64.StdEncoding.DecodeString(got.Message)
				require.NoError(t, err)
			}
			require.Equal(t, string(body), string(message))
			require.Equal(t, json.Number(strconv.FormatInt(e.Time.UnixMilli(), 10)), got.Timestamp)
			require.Equal(t, e.ID, got.CE["id"])
		}
	})
}

// FuzzCut checks where a text is cut: within the room there is, and no earlier than necessary.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"", "abc", "é", "<\x01\"\u2028😀\n", "\u2029\u2030"} {
		f.Add(s, 5)
	}
	f.Fuzz(func(t *testing.T, s string, room int) {
		if room < 0 || room > 1000 || !utf8.ValidString(s) {
			return
		}
		head := string(cut([]byte(s), room))
		require.Equal(t, s[:len(head)], head)
		size := func(s string) int { return len(jsontext.AppendString(nil, s)) - len(`""`) }
		require.LessOrEqual(t, size(head), room)
		if len(head) < len(s) {
			next := []rune(s[len(head):])[0]
			require.Greater(t, size(head+string(next)), room)
		}
	})
}
