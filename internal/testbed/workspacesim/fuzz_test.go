package workspacesim

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzHandler sends odd bodies and path segments to every operation: each
// answer is JSON in one of the document's two shapes, and never a 5xx.
func FuzzHandler(f *testing.F) {
	for op := range operations {
		f.Add(uint8(op), "acme-portal", "production", lokiBody)
		f.Add(uint8(op), "acme-portal", "test", datadogBody)
		f.Add(uint8(op), "acme-portal", "test", "")
	}
	f.Add(uint8(1), "acme-portal", "", `{"name":"\ud800"}`)
	f.Add(uint8(1), "acme-portal", "\x00/", `{"name":"x","name":null}`)
	f.Add(uint8(2), "acme-portal", "test", `{"valid_types":[{"type":"LOGIN","is_default":true},{}],"do_not_promote_defaults":null}`)
	f.Add(uint8(14), "", "", `{"project_name":"日本","vertical":"B2B"}`)
	f.Add(uint8(13), "acme-portal", "DATADOG", `{"destination_config":{"":{"":[[[[{}]]]]}}}`)
	sim, err := New(Options{Projects: 1})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, number uint8, project, other, body string) {
		op := operations[int(number)%len(operations)]
		path := strings.NewReplacer(":project_slug", escape(project), ":environment_slug", escape(other), ":", "").Replace(op.pattern)
		if strings.Contains(op.pattern, ":destination_type") {
			path = strings.Replace(path, "destination_type", "GRAFANA_LOKI", 1)
		}
		r := httptest.NewRequestWithContext(t.Context(), op.method, path, strings.NewReader(body))
		r.SetBasicAuth(DemoKeyID, DemoSecret)
		w := httptest.NewRecorder()
		sim.Handler().ServeHTTP(w, r)
		checkAnswer(t, w)
	})
}

// escape makes a path segment of any s.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString("%" + strings.ToUpper(string("0123456789abcdef"[s[i]>>4])+string("0123456789abcdef"[s[i]&15])))
	}
	return b.String()
}

func checkAnswer(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.True(t, utf8.Valid(w.Body.Bytes()))
	var body map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	require.EqualValues(t, w.Code, body["status_code"])
	require.NotEmpty(t, body["request_id"])
	require.Less(t, w.Code, 500)
	if w.Code != 200 {
		require.Len(t, body, 5)
		require.NotEmpty(t, body["error_message"])
	}
}

// FuzzBody checks the strict reader: encoding/json takes every body it takes.
func FuzzBody(f *testing.F) {
	for _, s := range []string{lokiBody, datadogBody, `{}`, `{"a":1,"a":2}`, ` {"\u0061":{"b":[1,2e9,null]}} `, `{"a":"\ud800"}`, `[`, `{"a":}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseBody(body)
		if err != nil {
			return
		}
		var v map[string]any
		require.NoError(t, json.Unmarshal(body, &v))
		require.Len(t, o.fields, len(v))
		o.text("name")
		o.boolean("flag")
		o.object("object")
		o.objects("list")
		o.done()
		require.Error(t, o.err())
	})
}
