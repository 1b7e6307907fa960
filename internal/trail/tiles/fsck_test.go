package tiles

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fsckModule checks a whole log: each entry, each tile, the root and the signature.
const fsckModule = "github.com/transparency-dev/tessera/cmd/fsck@v1.0.4"

// fsck installs another project's checker, once for all runs.
func fsck(t *testing.T) string {
	t.Helper()
	if os.Getenv("AUDITRELAY_FSCK") == "" {
		t.Skip("SKIPPED: with AUDITRELAY_FSCK=1 the log is checked by " + fsckModule + "; its first build takes minutes")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	dir := filepath.Join(cache, "auditrelay", "fsck-v1.0.4")
	program := filepath.Join(dir, "fsck")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	install := exec.CommandContext(t.Context(), "go", "install", fsckModule)
	install.Dir, install.Env = t.TempDir(), append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if said, err := install.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: %s cannot be installed here: %s", fsckModule, said)
	}
	return program
}

// Another project finds the log whole: as it is served, as it is exported, and as it is
// archived. It finds one changed byte, too, so it does look.
func TestAnotherProjectsFsckPasses(t *testing.T) {
	t.Parallel()
	program := fsck(t)
	h := newHouse(t, 66_000) // tiles on three levels
	h.add(entry(66_000), long(66_001))
	h.run()
	keyFile := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(keyFile, []byte(h.key(0)), 0o600))
	check := func(url string) string {
		said, err := exec.CommandContext(t.Context(), program, "--ui=false", "-v=1", "--N=4", "--storage_url="+url, "--public_key="+keyFile).CombinedOutput()
		require.NoError(t, err, string(said))
		return string(said)
	}
	server := httptest.NewServer(h.store.Handler())
	defer server.Close()
	export := t.TempDir()
	_, err := h.store.Export(t.Context(), export, nil)
	require.NoError(t, err)
	for _, url := range []string{server.URL + "/tlog/0/", "file://" + filepath.Join(export, "0") + "/"} {
		said := check(url)
		assert.Contains(t, said, "Completed ranges", url)
		assert.NotContains(t, said, "failed", url) // it exits with 0 in any case
	}
	archive := filepath.Join(t.TempDir(), "archive")
	a, _ := h.archiver(archive, 65_800)
	_, err = a.Run(t.Context())
	require.NoError(t, err)
	said := check("file://" + filepath.Join(archive, "0") + "/")
	assert.Contains(t, said, "Completed ranges", "an archive is a log of its own")
	assert.NotContains(t, said, "failed")
	assert.Contains(t, check(server.URL+"/tlog/0/"), "failed", "the log lacks the archived bundles")
	bundle := filepath.Join(export, "0", "tile", "entries", "100")
	data, err := os.ReadFile(bundle)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(bundle, []byte(flip(string(data))), 0o600))
	assert.Contains(t, check("file://"+filepath.Join(export, "0")+"/"), "fsck failed")
}
