package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
)

// tampered is a change of a data directory, and the findings expected.
type tampered struct {
	kind, what string
	flags      []string                 // for trail verify
	right      func(proof.Finding) bool // each finding must be; nil: there is none
	named      bool                     // by the relay too, in its trail
}

// TestATamperedDataDirectoryIsFound tampers with copies of a stopped relay's directory, by
// one seed each.
// Verify names each, and nothing else. The relay starts on it twice, takes events, and names
// the damage once: in each case with AUDITRELAY_TAMPER, else in every tenth.
func TestATamperedDataDirectoryIsFound(t *testing.T) {
	t.Parallel()
	cases, started := uint64(40), 10
	if testing.Short() {
		cases = 12
	}
	seeds := trailtest.Seeds(t, cases)
	if os.Getenv("AUDITRELAY_TAMPER") != "" {
		started = 1
	}
	below := t.TempDir()
	var made [2]*madeRelay
	t.Run("made", func(t *testing.T) {
		for i := range made {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				made[i] = makeRelay(t, filepath.Join(below, strconv.Itoa(i)))
			})
		}
	})
	m, stranger := made[0], made[1]
	report := m.verify(t, m.dir)
	require.Empty(t, report.Integrity.Findings, "the untouched directory")
	require.Empty(t, report.Completeness.Findings)
	kinds := make([]string, len(seeds))
	t.Run("cases", func(t *testing.T) {
		for i, seed := range seeds {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				x := newTamperer(t, m, stranger, seed)
				c := x.any()
				kinds[i] = c.kind
				report := m.verify(t, x.dir, c.flags...)
				for _, f := range report.Integrity.Findings {
					require.True(t, c.right != nil && c.right(f), "%s, %s: named wrongly: %s", c.kind, c.what, f)
				}
				require.Equal(t, c.right != nil, len(report.Integrity.Findings) > 0, "%s, %s: was it found?", c.kind, c.what)
				if i%started == 0 {
					startsTwice(t, x.dir, c)
				}
			})
		}
	})
	trailtest.Tell(t, kinds)
}

// verify runs trail verify on a copy.
func (m *madeRelay) verify(t *testing.T, dir string, flags ...string) (report verify.Report) {
	t.Helper()
	args := []string{"trail", "verify", "--offline", "--data-dir", filepath.Join(dir, "data"), "--key", m.public, "--output", "json"}
	_, out, errs := command(t, append(args, flags...)...)
	require.NoError(t, json.Unmarshal([]byte(out), &report), errs)
	return report
}

// startsTwice starts the relay twice: it takes events, and names the damage once.
func startsTwice(t *testing.T, dir string, c tampered) {
	t.Helper()
	cfg := configOf(dir)
	before := len(namings(t, cfg))
	for round := range 2 {
		r := startRelay(t, cfg)
		r.push(fmt.Sprintf("after-%d", round))
		if c.named {
			waiting.Until(t, func() bool { return len(namings(t, cfg)) > before }, "%s, %s: the trail does not name it", c.kind, c.what)
		}
		r.stop()
	}
	all := namings(t, cfg)
	slices.Sort(all)
	assert.Equal(t, slices.Compact(slices.Clone(all)), all, "%s, %s: something is named twice", c.kind, c.what)
	if !c.named {
		assert.Len(t, all, before, "%s, %s: the trail names something", c.kind, c.what)
	}
}

// tamperer changes one copy of a data directory.
type tamperer struct {
	t        *testing.T
	r        *rand.Rand
	dir      string
	made     *madeRelay
	stranger *madeRelay
}

func newTamperer(t *testing.T, m, stranger *madeRelay, seed uint64) *tamperer {
	t.Helper()
	x := &tamperer{t, rand.New(rand.NewPCG(seed, 12)), t.TempDir(), m, stranger}
	require.NoError(t, os.CopyFS(x.dir, os.DirFS(m.dir)))
	return x
}

func (x *tamperer) path(name string) string { return filepath.Join(x.dir, "data", name) }

func (x *tamperer) read(name string) []byte {
	x.t.Helper()
	data, err := os.ReadFile(x.path(name))
	require.NoError(x.t, err)
	return data
}

func (x *tamperer) write(name string, data []byte) {
	x.t.Helper()
	require.NoError(x.t, os.WriteFile(x.path(name), data, 0o600))
}

func (x *tamperer) remove(name string) {
	x.t.Helper()
	require.NoError(x.t, os.RemoveAll(x.path(name)))
}

// put puts another relay's file or folder in the place of this one's.
func (x *tamperer) put(from, name string) {
	x.t.Helper()
	from = filepath.Join(from, "data", name)
	info, err := os.Stat(from)
	require.NoError(x.t, err)
	x.remove(name)
	if info.IsDir() {
		require.NoError(x.t, os.CopyFS(x.path(name), os.DirFS(from)))
		return
	}
	data, err := os.ReadFile(from)
	require.NoError(x.t, err)
	x.write(name, data)
}

func pick[T any](x *tamperer, all ...T) T { return all[x.r.IntN(len(all))] }

// spoil flips a bit of a file, cuts it, or removes it.
func (x *tamperer) spoil(name string) (how string) {
	data := x.read(name)
	switch how = pick(x, "flipped", "cut", "removed"); how {
	case "flipped":
		at := x.r.IntN(vouched(name, data))
		data[at] ^= 1 << x.r.IntN(8)
		x.write(name, data)
		return fmt.Sprintf("flipped byte %d of %s", at, name)
	case "cut":
		at := x.r.IntN(vouched(name, data))
		x.write(name, data[:at])
		return fmt.Sprintf("cut %s to %d bytes", name, at)
	}
	x.remove(name)
	return how + " " + name
}

// vouched is how much of a file the key in hand vouches for. A signature line of an unknown
// key says nothing; a spoilt second line may look like one.
func vouched(name string, data []byte) int {
	const line = "\n\u2014 "
	first := bytes.Index(data, []byte(line))
	if second := bytes.Index(data[max(first, 0)+1:], []byte(line)); strings.HasSuffix(name, "/checkpoint") && second >= 0 {
		return first + 1 + second
	}
	return len(data)
}

// ofKind expects findings of some kinds.
func ofKind(kinds ...string) func(proof.Finding) bool {
	return func(f proof.Finding) bool { return slices.Contains(kinds, f.Kind) }
}

// inLogs reports whether a finding is about the trail's logs.
func inLogs(f proof.Finding) bool { return f.File == "the trail's log" }
