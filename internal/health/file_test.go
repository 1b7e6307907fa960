package health

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/received"
)

func keeperOf(t testing.TB, path string, log *slog.Logger) *Keeper {
	t.Helper()
	k, err := New(Options{Environments: []config.Environment{environment()}, Book: received.New(time.Now), File: path, Logger: log})
	require.NoError(t, err)
	return k
}

// A damaged file costs what was learnt, never the start.
func TestADamagedFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, logged string }{
		"none":            {"", "they are learnt again"},
		"torn":            {`{"environments":{"shop/live":`, "they are learnt again"},
		"another's":       {`[]`, "they are learnt again"},
		"a damaged model": {`{"environments":{"shop/live":{"model":{"version":77}}}}`, "the rhythm of an environment is learnt again"},
		"sound":           {`{"environments":{"shop/live":null,"gone/gone":{}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), FileName)
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			var logs strings.Builder
			k := keeperOf(t, path, slog.New(slog.NewTextHandler(&logs, nil)))
			if c.logged == "" {
				assert.Empty(t, logs.String())
			}
			assert.Contains(t, logs.String(), c.logged)
			k.begin(time.Now())
			k.tick(time.Now())
			require.NoError(t, k.writer.save(true))
			_, err := readFile(path)
			assert.NoError(t, err)
		})
	}
}

func TestANamedPipeHoldsUpNoStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	var logs strings.Builder
	k := keeperOf(t, path, slog.New(slog.NewTextHandler(&logs, nil)))
	assert.Contains(t, logs.String(), "it is not a regular file")
	require.NoError(t, k.writer.save(true))
	_, err := readFile(path)
	assert.NoError(t, err)
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(`{"saved":"2026-11-18T12:00:00Z","environments":{"shop/live":{"last_push":"2026-11-18T12:00:00Z",
		"refusals":{"credential":{"Count":1,"First":"2026-11-18T12:00:00Z","Last":"2026-11-18T12:00:01Z"}},
		"gap":{"cause":"silent","begun":"2026-11-18T12:00:00Z"},"gaps":[{}],"gaps_due":[{}],"recent":{"events":1,"seconds":-1}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := parse(raw)
		if err != nil {
			return
		}
		k := keeperOf(t, "", nil)
		for _, kept := range x.Environments {
			if kept != nil {
				_ = k.watches[0].take(kept, x.Saved)
			}
		}
		k.begin(time.Now())
		k.tick(time.Now())
		_ = k.Status()
		_, _, err = k.encode(true)
		assert.NoError(t, err)
	})
}

// A gap's change is saved as soon as the disk takes it, not at the next minute.
func TestAFailedSavingIsRepeated(t *testing.T) {
	t.Parallel()
	h, _ := newKept(t)
	h.pass(100, h.each20)
	require.NoError(t, h.keeper.writer.save(true))
	file := h.file
	h.keeper.options.File = filepath.Join(t.TempDir(), "missing", FileName)
	h.pass(10, wrong)
	require.Error(t, h.keeper.writer.save(false))
	h.keeper.options.File = file
	require.NoError(t, h.keeper.writer.save(false))
	x, err := readFile(file)
	require.NoError(t, err)
	assert.NotNil(t, x.Environments[live.String()].Open)
}
