package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stopped relay without files for public tools is verified from its streams.
func TestTrailVerifyReadsAStoppedRelay(t *testing.T) {
	t.Parallel()
	dir := makeTrail(t)
	code, out, errs := command(t, "trail", "verify", "--offline", "--data-dir", dir)
	assert.Equal(t, 3, code, errs)
	assert.Contains(t, out, "integrity: holds")
	assert.Contains(t, out, "NOTHING IS PROVEN")
	_, public, errs := command(t, "trail", "keygen", "--origin", "example.com/trail", "--file", filepath.Join(t.TempDir(), "other.key"))
	require.NotEmpty(t, public, errs)
	code, out, _ = command(t, "trail", "verify", "--offline", "--data-dir", dir, "--key", strings.TrimSpace(public))
	assert.Equal(t, 1, code, "another key of the same name")
	assert.Contains(t, out, "which is not the trusted one")

	flipEntry(t, dir, "AUDITRELAY_AUDIT", 4)
	code, out, _ = command(t, "trail", "verify", "--offline", "--data-dir", dir)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "missing: entry 4: the trail's streams")
}
