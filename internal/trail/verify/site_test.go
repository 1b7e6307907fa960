package verify

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A relay lists its logs at /tlog/; each log is also a trail of its own.
func TestATrailIsReadFromASite(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	served := l.write(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tlog/" {
			_, _ = fmt.Fprint(w, `[{"number":0,"origin":"example.com/log"}]`)
			return
		}
		data, there := served[strings.TrimPrefix(r.URL.Path, "/tlog/0/")]
		if !there {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	defer site.Close()
	for _, url := range []string{"/tlog/", "/tlog", "/tlog/0"} {
		fetch, dirs, err := Site(t.Context(), site.Client(), site.URL+url)
		require.NoError(t, err, url)
		r, err := Trail(t.Context(), fetch, dirs, Options{Policy: policy(t, 0, l.key.verifier), Live: true, Workers: 8})
		require.NoError(t, err)
		sound(t, r)
		assert.EqualValues(t, 300, r.Entries)
	}
	_, _, err := Site(t.Context(), site.Client(), site.URL+"/elsewhere")
	require.ErrorContains(t, err, "has neither a checkpoint nor a list of logs")
}

// An address may hold a password for a proxy in front of the relay. No error shows it.
func TestNoErrorShowsThePasswordOfASite(t *testing.T) {
	t.Parallel()
	status := http.StatusNotFound
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer site.Close()
	for _, status = range []int{http.StatusNotFound, http.StatusForbidden, http.StatusBadRequest} {
		_, _, err := Site(t.Context(), site.Client(), strings.Replace(site.URL, "://", "://reader:hidden-pass@", 1))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hidden-pass", status)
		assert.Contains(t, err.Error(), "reader:xxxxx@", status)
	}
	_, _, err := Site(t.Context(), site.Client(), "http://reader:hidden-pass@127.0.0.1:no-port/")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hidden-pass")
}

func TestATrailIsReadFromAFolder(t *testing.T) {
	t.Parallel()
	l := newTestLog(t, "example.com/log", 0)
	l.add(t, records(0, 300)...)
	l.sign(t)
	dir := t.TempDir()
	for name, data := range l.write(t) {
		to := filepath.Join(dir, "0", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, data, 0o600))
	}
	for _, folder := range []string{dir, filepath.Join(dir, "0")} {
		fetch, dirs, err := Folder(folder)
		require.NoError(t, err)
		r, err := Trail(t.Context(), fetch, dirs, Options{Policy: policy(t, 0, l.key.verifier)})
		require.NoError(t, err)
		sound(t, r)
	}
	require.NoError(t, os.Rename(filepath.Join(dir, "0"), filepath.Join(dir, "1")))
	fetch, dirs, err := Folder(dir)
	require.NoError(t, err)
	r, err := Trail(t.Context(), fetch, dirs, Options{Policy: policy(t, 0, l.key.verifier)})
	require.NoError(t, err)
	assert.Contains(t, texts(r.Integrity), "checkpoint: 0: no checkpoint can be read, of the file and of the history")
	_, _, err = Folder(t.TempDir())
	require.ErrorContains(t, err, "has no file checkpoint, and no folder 0")
}
