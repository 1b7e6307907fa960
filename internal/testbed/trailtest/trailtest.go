// Package trailtest opens audit trails for tests.
package trailtest

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/disk"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Store opens a store in dir.
func Store(tb testing.TB, dir string) store.Store {
	tb.Helper()
	s, err := disk.Open(disk.Config{Dir: filepath.Join(dir, "store"), Salvage: filepath.Join(dir, "salvage"), Writer: "test", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(tb, err)
	return s
}

// Serve opens a trail in a store of its own, with all files in dir. stop closes both
// before the test's end; then dir can be served again.
func Serve(tb testing.TB, dir string) (trail *audit.Trail, stop func()) {
	tb.Helper()
	s := Store(tb, dir)
	trail, err := audit.Open(tb.Context(), s, audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}})
	require.NoError(tb, err)
	_, err = trail.End(tb.Context()) // it is read by then
	require.NoError(tb, err)
	return trail, func() {
		require.NoError(tb, trail.Close(context.WithoutCancel(tb.Context())))
		require.NoError(tb, s.Close())
	}
}

// New is a trail in a store of its own, until the test ends.
func New(tb testing.TB) *audit.Trail {
	tb.Helper()
	trail, stop := Serve(tb, tb.TempDir())
	tb.Cleanup(stop)
	return trail
}

// Verify reads all of a trail, and checks it without its key. files may be nil.
func Verify(tb testing.TB, trail *audit.Trail, files audit.Files) audit.Report {
	tb.Helper()
	report, _, err := audit.VerifyOffline(tb.Context(), audit.Options{Evidence: audit.Evidence{Files: files}}, trail.Reader)
	require.NoError(tb, err)
	return report
}

// Entries are all entries of a trail, oldest first.
func Entries(tb testing.TB, trail *audit.Trail) (all []audit.Entry) {
	tb.Helper()
	require.NoError(tb, trail.Each(tb.Context(), 0, func(e audit.Recorded) error {
		all = append(all, e.Entry)
		return nil
	}))
	return all
}

// Fill appends the records of n entries to the log of a store, without a trail. A trail that is
// opened later takes them for its own. Their names may contain only letters, digits, - and _.
func Fill(tb testing.TB, s store.Store, n int, entry func(i int) audit.Entry) {
	tb.Helper()
	log, err := s.Log(tb.Context(), audit.EntriesLog, store.Options{})
	require.NoError(tb, err)
	const plain, batch = 1, 1000 // the kind of a record that is not compressed
	var drafts []store.Draft
	for i := range n {
		e := entry(i)
		raw, err := json.Marshal(e)
		require.NoError(tb, err)
		record, err := jsontext.Canonical(raw)
		require.NoError(tb, err)
		drafts = append(drafts, store.Draft{Kind: plain, Key: strings.Join([]string{e.Project, e.Environment, e.Subject}, "."), Data: record})
		if len(drafts) == batch || i == n-1 {
			_, err := log.Append(tb.Context(), drafts...)
			require.NoError(tb, err)
			drafts = drafts[:0]
		}
	}
}
