package tiles

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// answer is a response that was read whole.
type answer struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

func ask(t *testing.T, method, url string, header ...string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	if len(header) > 0 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answer{resp.StatusCode, resp.Header, resp.ContentLength}, string(body)
}

func TestTheLogIsServed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.add(long(300))
	h.run()
	server := httptest.NewServer(h.store.Handler())
	defer server.Close()
	all := files(t, h.store.Log(0).dir)
	for name, data := range all {
		for _, log := range []string{"0", "latest"} {
			resp, body := ask(t, http.MethodGet, server.URL+"/tlog/"+log+"/"+name)
			require.Equal(t, http.StatusOK, resp.StatusCode, name)
			require.Equal(t, data, body, name)
			want := forEver
			if strings.HasPrefix(name, "checkpoint") {
				want = never
			}
			require.Equal(t, want, resp.Header.Get("Cache-Control"), name)
			require.Contains(t, want, "private", "who asks may need a token, and others share the cache")
		}
	}
	kinds := map[string]string{
		"checkpoint": "text/plain; charset=utf-8", "checkpoints": "application/jsonl", "tile/0/000": "application/octet-stream",
		"tile/entries/000": "application/octet-stream",
	}
	for name, kind := range kinds {
		resp, body := ask(t, http.MethodHead, server.URL+"/tlog/0/"+name)
		require.Equal(t, kind, resp.Header.Get("Content-Type"))
		require.EqualValues(t, len(all[name]), resp.ContentLength)
		require.Empty(t, body)
	}
	resp, body := ask(t, http.MethodGet, server.URL+"/tlog/0/tile/0/000", "Range", "bytes=32-63")
	require.Equal(t, http.StatusPartialContent, resp.StatusCode)
	require.Equal(t, all["tile/0/000"][32:64], body)
	resp, body = ask(t, http.MethodGet, server.URL+"/tlog/")
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	var list []struct {
		Path, Origin string
		Size         int64
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list, 1)
	require.Equal(t, "/tlog/0/", list[0].Path)
	require.EqualValues(t, 301, list[0].Size)
}

// A reader with an older checkpoint asks for narrower tiles than there are.
func TestNarrowerTilesAreCutFromWiderOnes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 300)
	h.run()
	server := httptest.NewServer(h.store.Handler())
	defer server.Close()
	for path, want := range map[string]int{
		"tile/0/000.p/7": 7 * 32, "tile/0/001.p/44": 44 * 32, "tile/0/001.p/1": 32, "tile/0/001.p/45": -1, "tile/0/001": -1,
		"tile/1/000.p/1": 32, "tile/1/000.p/2": -1, "tile/entries/001.p/45": -1, "tile/2/000.p/1": -1,
	} {
		resp, body := ask(t, http.MethodGet, server.URL+"/tlog/0/"+path)
		if want < 0 {
			assert.Equal(t, http.StatusNotFound, resp.StatusCode, path)
			continue
		}
		assert.Len(t, body, want, path)
	}
	for _, width := range []string{"/tile/entries/000.p/3", "/tile/entries/001.p/3"} {
		_, body := ask(t, http.MethodGet, server.URL+"/tlog/0"+width)
		leaves, err := proof.Leaves([]byte(body))
		require.NoError(t, err)
		require.Len(t, leaves, 3)
		for _, leaf := range leaves {
			require.Contains(t, string(leaf), `"settings.changed"`)
		}
	}
	// What is served is what 'trail verify' reads, whatever else stands next to it.
	own, err := os.ReadFile(h.store.Log(0).path("tile/entries/001.p/44"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.store.Log(0).path("tile/entries/001"), bytes.ReplaceAll(own, []byte("changed"), []byte("checked")), 0o600))
	_, body := ask(t, http.MethodGet, server.URL+"/tlog/0/tile/entries/001.p/44")
	require.Equal(t, string(own), body)
}

func TestNothingElseIsServed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3)
	h.run()
	server := httptest.NewServer(h.store.Handler())
	defer server.Close()
	for _, path := range []string{
		"/tlog/1/checkpoint", "/tlog/00/checkpoint", "/tlog/-1/checkpoint", "/tlog/+0/checkpoint", "/tlog/0", "/tlog/0/", "/tlog/0/tile",
		"/tlog/0/tile/0/", "/tlog/0/tile/0/../../checkpoint", "/tlog/0/%2e%2e/%2e%2e/audit.key", "/tlog/%2e%2e/audit.key", "/tlog/0/../../audit.key",
		"/tlog/0/tile/0/%2e%2e/0/000.p/3", "/tlog/0/tile/0/000.p/03", "/tlog/0/tile/0/000.p/256", "/tlog/0/tile/64/000.p/3", "/tlog/0/records/",
		"/tlog/0/records/" + strings.Repeat("0", 64), "/tlog/0/records/" + strings.Repeat("A", 64), "/tlog/0/.checkpoint.1.tmp", "/tlog/latest",
	} {
		resp, body := ask(t, http.MethodGet, server.URL+path)
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, path)
		assert.NotContains(t, body, h.store.dir)
	}
	resp, _ := ask(t, http.MethodPost, server.URL+"/tlog/0/checkpoint")
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	assert.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
}
