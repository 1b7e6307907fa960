package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const siteToken = "a-token-of-the-trail"

// A guarded trail is read with its token. The token goes to the host of --url only.
func TestAGuardedTrailIsReadWithItsToken(t *testing.T) {
	t.Setenv(configVariable, "")
	t.Setenv(tokenVariable, "")
	dir, key := exportedTrail(t, 3)
	files := http.FileServer(http.Dir(dir))
	var strayed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			strayed.Add(1)
		}
		files.ServeHTTP(w, r)
	}))
	defer elsewhere.Close()
	var moved atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+siteToken:
			w.WriteHeader(http.StatusUnauthorized)
		case moved.Load():
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusFound)
		default:
			files.ServeHTTP(w, r)
		}
	}))
	defer site.Close()
	file := filepath.Join(t.TempDir(), "tlog.token")
	require.NoError(t, os.WriteFile(file, []byte(siteToken+"\n"), 0o600))
	proofs := t.TempDir()
	verify := []string{"verify", "--url", site.URL + "/0", "--key", key}
	prove := []string{"prove", "2", "--url", site.URL + "/0", "--key", key, "--dir", proofs}

	for _, args := range [][]string{verify, prove} {
		refused := trailCommand(t, ExitFailure, args...)
		assert.Contains(t, refused, "401 Unauthorized")
		assert.Contains(t, refused, "--token-file FILE or AUDITRELAY_TLOG_TOKEN")
	}
	for _, away := range []bool{false, true} {
		moved.Store(away)
		assert.Contains(t, trailCommand(t, ExitOK, append(verify, "--token-file", file)...), "integrity: holds")
		assert.Contains(t, trailCommand(t, ExitOK, append(prove, "--token-file", file)...), "1 of 1 proofs")
	}
	assert.Zero(t, strayed.Load(), "the token was sent to another host")
	moved.Store(false)
	t.Setenv(tokenVariable, siteToken)
	assert.Contains(t, trailCommand(t, ExitOK, verify...), "integrity: holds")

	t.Setenv(tokenVariable, siteToken+"-of-yesterday")
	assert.NotContains(t, trailCommand(t, ExitFailure, verify...), siteToken)
	t.Setenv(tokenVariable, siteToken+"\nX: y")
	assert.NotContains(t, trailCommand(t, ExitFailure, verify...), siteToken)
	assert.Contains(t, trailCommand(t, ExitUsage, "verify", "--dir", dir, "--token-file", file), "--token-file needs --url")
}
