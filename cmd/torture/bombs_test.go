package main

import (
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBombs plays a round of the scenario with the real binary, in at most bombMemory.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the relay")
	}
	binary := filepath.Join(t.TempDir(), "auditrelay")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../auditrelay").CombinedOutput()
	require.NoError(t, err, "%s", out)
	b := &trial{flags: flags{binary: binary, rounds: 5, seed: 7, rate: 200}, dir: t.TempDir(), out: t.Output(), row: row{name: "bombs"}}
	require.NoError(t, bombed(t.Context(), b))
	t.Log(b.row.remarks)
	assert.Zero(t, b.row.lost)
}

// Equal seeds make equal bombs.
func TestBombsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	shapes := append(lokiShapes(), datadogShapes()...)
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 200 {
		one, err := makeBomb(a, shapes, 1<<16)
		require.NoError(t, err)
		same, err := makeBomb(b, shapes, 1<<16)
		require.NoError(t, err)
		require.Equal(t, one, same)
	}
}
