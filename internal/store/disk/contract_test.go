package disk

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/storetest"
)

// folder is a store in a real folder, under the suite.
type folder struct {
	cfg   Config
	store *Store
}

func openFolder(t testing.TB) storetest.Backend {
	dir := t.TempDir()
	f := &folder{cfg: Config{
		Dir: filepath.Join(dir, "store"), Salvage: filepath.Join(dir, "salvage"),
		Writer: "test", Logger: slog.New(slog.DiscardHandler),
	}}
	f.open(t)
	t.Cleanup(func() { require.NoError(t, f.store.Close()) })
	return f
}

func (f *folder) open(t testing.TB) {
	var err error
	f.store, err = Open(f.cfg)
	require.NoError(t, err)
}

func (f *folder) Log(t testing.TB, name string) store.Log { return f.LogAs(t, name, store.ID{}) }

func (f *folder) LogAs(t testing.TB, name string, id store.ID) store.Log {
	l, err := f.store.Log(t.Context(), name, store.Options{MaxBytes: 32 << 20, Allocate: name == "events", ID: id})
	require.NoError(t, err)
	return l
}

func (f *folder) Table() store.Table { return f.store.Table() }

// Kill leaves the files as a killed process does: the kernel has what was written.
func (f *folder) Kill(t testing.TB) {
	f.store.stop()
	<-f.store.stopped
	require.NoError(t, f.store.guard.Close())
	f.open(t)
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openFolder)
}
