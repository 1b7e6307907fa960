package web

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScriptsAreServedForEverUnderTheHashOfTheirContent(t *testing.T) {
	t.Parallel()
	_, server := serve(t)
	at, err := scriptPath("htmx-4.0.1.min.js")
	require.NoError(t, err)
	resp, body := send(t, http.MethodGet, server.URL+at, nil, "Accept-Encoding", "gzip")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Cache-Control"), "immutable")
	assert.Contains(t, resp.Header.Get("Content-Type"), "text/javascript")
	packed, err := gzip.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	unpacked, err := io.ReadAll(packed)
	require.NoError(t, err)
	resp, plain := send(t, http.MethodGet, server.URL+at, nil, "Accept-Encoding", "identity")
	assert.Empty(t, resp.Header.Get("Content-Encoding"))
	assert.Equal(t, plain, string(unpacked))
	for _, other := range []string{strings.Replace(at, scriptsHash(), "0123456789abcdef", 1), at + ".map", scriptsPath + scriptsHash() + "/SHA256SUMS"} {
		resp, _ := send(t, http.MethodGet, server.URL+other, nil)
		assert.Equal(t, http.StatusNotFound, resp.StatusCode, other)
		assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"), "an answer that may change is kept")
	}
	_, err = scriptPath("gone.js")
	require.Error(t, err)
}

func TestVendoredScriptsAreTheOnesOfTheirHashes(t *testing.T) {
	t.Parallel()
	sums, err := os.Open(filepath.Join("static", "SHA256SUMS"))
	require.NoError(t, err)
	defer func() { _ = sums.Close() }()
	named := map[string]bool{}
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		want, name, found := strings.Cut(lines.Text(), "  ")
		require.True(t, found, lines.Text())
		text, err := os.ReadFile(filepath.Join("static", name))
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		assert.Equal(t, want, hex.EncodeToString(sum[:]), name)
		named[name] = true
	}
	files, err := scriptFiles.ReadDir("static")
	require.NoError(t, err)
	for _, file := range files {
		name := file.Name()
		assert.Equal(t, strings.Contains(name, ".min."), named[name], "%s is of a package, or our own", name)
	}
}

func TestAllScriptsTogetherAreSmall(t *testing.T) {
	t.Parallel()
	_, server := serve(t)
	files, err := scriptFiles.ReadDir("static")
	require.NoError(t, err)
	total, own := 0, 0
	for _, file := range files {
		at, err := scriptPath(file.Name())
		require.NoError(t, err)
		_, packed := send(t, http.MethodGet, server.URL+at, nil, "Accept-Encoding", "gzip")
		_, plain := send(t, http.MethodGet, server.URL+at, nil, "Accept-Encoding", "identity")
		require.LessOrEqual(t, len(packed), len(plain))
		total += len(packed)
		if !strings.Contains(file.Name(), ".min.") {
			own += len(packed)
		}
		assert.NotContains(t, plain, "sourceMappingURL", "%s asks for a file that is not there", file.Name())
	}
	t.Logf("%d bytes of script as transferred, %d of them our own", total, own)
	assert.LessOrEqual(t, total, 60<<10)
	assert.LessOrEqual(t, own, 18<<10)
}
