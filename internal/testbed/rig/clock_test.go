package rig

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimeNowIsGivenAnOffset(t *testing.T) {
	t.Parallel()
	root, err := goSays(t.Context(), "env", "GOROOT")
	if err != nil {
		t.Skip("Go is not here:", err)
	}
	source, err := os.ReadFile(filepath.Join(root, "src", "time", "time.go"))
	if err != nil {
		t.Skip("the standard library's sources are not here:", err)
	}
	moved, ok := withOffset(string(source))
	require.True(t, ok, "this Go's time.Now is another one: the clock scenario would be skipped")
	assert.Contains(t, moved, "runtimeNow()\n\tsec += RigOffset.Load()\n")
	_, ok = withOffset(moved[:len(moved)/2])
	assert.False(t, ok)
}

func TestWithoutSourcesThereIsNoClock(t *testing.T) {
	t.Parallel()
	_, err := writeOverlay(t.TempDir(), t.TempDir(), t.TempDir())
	var none *NoClockError
	require.ErrorAs(t, err, &none)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&ClockBuild{done: make(chan struct{})}).Wait(ended)
	require.ErrorIs(t, err, context.Canceled)
}
