package verify

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEvents reads any bytes as a sink's copy: nothing of it is proven, and memory is bounded.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"t","project":"p","subject":"s","trail":{"index":7,"origin":"a","leaf":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}}`))
	f.Add([]byte("{\"type\":\"trail.checkpoint\",\"checkpoint\":\"x\"}\n\n{"))
	p := policy(f, 0, newKey(f, "example.com/log").verifier)
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Events(t.Context(), bytes.NewReader(text), Options{Policy: p, Workers: 1})
		if err == nil && r.Entries > 0 {
			t.Errorf("%q proves %d entries", text, r.Entries)
		}
	})
}

// FuzzHistory reads any bytes as a log's history.
func FuzzHistory(f *testing.F) {
	l := newTestLog(f, "example.com/log", 0)
	l.add(f, records(0, 3)...)
	l.sign(f)
	whole := l.write(f)
	f.Add(whole["checkpoints"])
	o := Options{Policy: policy(f, 0, l.key.verifier), Workers: 1}
	f.Fuzz(func(t *testing.T, text []byte) {
		files := whole.clone()
		files["checkpoints"] = text
		r, err := Trail(t.Context(), files.fetch, []string{""}, o)
		require.NoError(t, err)
		torn, same := bytes.CutPrefix(text, whole["checkpoints"])
		if r.Integrity.Holds && (!same || bytes.Contains(torn, []byte("\n"))) {
			t.Errorf("%q is taken for the history", text)
		}
	})
}
