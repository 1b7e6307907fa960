package app

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A bit is flipped in each file of a data directory not covered by other tests. The relay
// takes pushes and delivers them, and names no loss where none is.
func TestABitInEachOtherFileStopsNothing(t *testing.T) {
	t.Parallel()
	made := newDamageable(t)
	data := filepath.Join(made.dir, "data")
	flipped := controlFiles(t, data)
	var rest []string
	require.NoError(t, filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(data, path)
		elsewhere := strings.HasPrefix(name, "store/") || slices.Contains(flipped, name)
		if err == nil && d.Type().IsRegular() && !elsewhere {
			rest = append(rest, name)
		}
		return err
	}))
	assert.Subset(t, rest, []string{"trail.forwarded", "trail.index"})
	cfg := made.copied(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, of %v", seed, rest)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, name := range rest {
		damageFile(t, filepath.Join(cfg.DataDir, name), "flipped", rng)
	}
	assertRunsAndNames(t, cfg, made.issued, false)
}
