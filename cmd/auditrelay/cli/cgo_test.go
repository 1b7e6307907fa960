package cli

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCgoUnderALimit runs itself with a limit of its address space.
func TestCgoUnderALimit(t *testing.T) {
	warned := func(cgo string) string {
		var log bytes.Buffer
		warnOfCgo(slog.New(slog.NewTextHandler(&log, nil)), &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "CGO_ENABLED", Value: cgo}}})
		return log.String()
	}
	if os.Getenv("LIMITED") == "" {
		assert.Empty(t, warned("1"), "without a limit it is no matter")
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -v 8000000 && exec "$0" -test.run '^TestCgoUnderALimit$'`, os.Args[0])
		cmd.Env = append(os.Environ(), "LIMITED=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	assert.Contains(t, warned("1"), "build it with CGO_ENABLED=0")
	assert.Empty(t, warned("0"))
}
