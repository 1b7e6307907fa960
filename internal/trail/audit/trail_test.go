package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func testOptions(t *testing.T) Options {
	t.Helper()
	return Options{
		KeySource: KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(t.TempDir(), "audit.key")}, SignEvery: time.Millisecond,
	}
}

func openTrail(t *testing.T, st *testStore, o Options) *Trail {
	t.Helper()
	trail, err := Open(t.Context(), st, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = trail.Close(context.WithoutCancel(t.Context())) })
	readAll(t, trail)
	return trail
}

// Err is nil where there is no problem, else ErrDamaged with the problems.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrDamaged, spellOut(r.Problems))
}

// Verify reads an open trail back, and checks everything. Others may append to it meanwhile.
func (t *Trail) Verify(ctx context.Context) (Report, error) {
	x, err := t.examine(ctx)
	if err != nil {
		return Report{}, err
	}
	return x.report, nil
}

func (t *Trail) examine(ctx context.Context) (*examination, error) {
	if err := t.isOpen(ctx); err != nil {
		return nil, err
	}
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	pinned := t.signed.Len() > 0 && !t.pinDue
	x := &examination{Reader: t.Reader, options: t.options, key: t.key, pinExpected: pinned, marked: pinned}
	t.unlock()
	return x, x.examine(ctx)
}

// treeNow is the tree of the newest generation.
func (t *Trail) treeNow() tree { return tree{}.With(t.known.between(t.base, t.next())...) }

// readAll waits until an open trail was read, and what was found is named.
func readAll(t *testing.T, trail *Trail) {
	t.Helper()
	if trail.isOpen(t.Context()) == nil && trail.stale.Load() {
		require.NoError(t, trail.Sign(t.Context()))
	}
}

var testTime = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// testEntry is entry i: of one of three resources, each unlike the others.
func testEntry(i int) Entry {
	return Entry{
		Type: "settings.changed", Project: "acme", Environment: "live",
		Subject: fmt.Sprintf("resource.%d", i%3), Time: testTime.Add(time.Duration(i) * time.Second),
		After: json.RawMessage(fmt.Sprintf(`{"value":%d}`, i)),
	}
}

func appendEntries(t *testing.T, trail *Trail, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		index, err := trail.Append(t.Context(), testEntry(i))
		require.NoError(t, err)
		require.EqualValues(t, i, index)
	}
}

// waitSigned waits until a checkpoint covers n entries.
func waitSigned(t *testing.T, trail *Trail, n int64) {
	t.Helper()
	waiting.Until(t, func() bool {
		require.NoError(t, trail.lock(t.Context()))
		defer trail.unlock()
		return trail.signed.Len() >= n
	})
}

func requireWhole(t *testing.T, trail *Trail, entries int64) {
	t.Helper()
	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Equal(t, entries, report.Entries)
}

func TestAppendAndRead(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))

	_, found, err := trail.Last(t.Context(), "acme", "live", "resource.0")
	require.NoError(t, err)
	require.False(t, found)
	appendEntries(t, trail, 0, 10)
	require.EqualValues(t, 10, trail.Size())

	last, found, err := trail.Last(t.Context(), "acme", "live", "resource.1")
	require.NoError(t, err)
	require.True(t, found)
	want := testEntry(7)
	want.Index, want.Salt = 7, last.Salt
	require.Equal(t, want, last)

	entries := entriesFrom(t, trail, 8)
	require.Len(t, entries, 2)
	require.EqualValues(t, 8, entries[0].Index)
	require.Empty(t, entriesFrom(t, trail, 10))
	requireWhole(t, trail, 10)
}

// entriesFrom are the entries of a trail from an index on.
func entriesFrom(t *testing.T, trail *Trail, index int64) (entries []Entry) {
	t.Helper()
	require.NoError(t, trail.Each(t.Context(), index, func(e Recorded) error {
		entries = append(entries, e.Entry)
		return nil
	}))
	return entries
}

func TestResourcesDoNotMix(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	names := [][3]string{
		{"a", "", "s"},
		{"a", "%", "s"},
		{"a", "-", "s"},
		{"a.b", "c", "s"},
		{"a", "b.c", "s"},
		{"*", ">", "s"},
		{"ä b", "\t", "s"},
		{"a", "b", "c s"},
		{strings.Repeat("ä", 300) + "1", "b", "s"}, // longer than a key of the store in its own form
		{strings.Repeat("ä", 300) + "2", "b", "s"},
		{strings.Repeat("p", 2000), strings.Repeat("e", 2000), "s"},
		{strings.Repeat("p", 2000), strings.Repeat("e", 2000), "t"},
		{strings.Repeat("p", 2000), strings.Repeat("e", 2000), strings.Repeat("s", 2000)},
	}
	for i, n := range names {
		e := testEntry(i)
		e.Project, e.Environment, e.Subject = n[0], n[1], n[2]
		_, err := trail.Append(t.Context(), e)
		require.NoError(t, err)
	}
	for i, n := range names {
		e, found, err := trail.Last(t.Context(), n[0], n[1], n[2])
		require.NoError(t, err)
		require.True(t, found)
		assert.EqualValues(t, i, e.Index, "%q", n)
	}
	newest, err := trail.Newest(t.Context(), "t")
	require.NoError(t, err)
	require.Len(t, newest, 1)
	requireWhole(t, trail, int64(len(names)))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	dir, o := t.TempDir(), testOptions(t)
	for round := range 4 {
		st, stop := startStore(t, dir)
		trail, err := Open(t.Context(), st, o)
		require.NoError(t, err)
		readAll(t, trail)
		require.EqualValues(t, round*5, trail.Size())
		appendEntries(t, trail, round*5, round*5+5)
		if round%2 == 0 { // else as after a crash: what is not signed yet stays so
			require.NoError(t, trail.Close(t.Context()))
		} else {
			trail.stop()
			<-trail.done
		}
		stop()
	}
	st, _ := startStore(t, dir)
	trail := openTrail(t, st, o)
	requireWhole(t, trail, 20)
	info, err := os.Stat(o.KeyFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestConcurrentAppends(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Shared = true
	trails := []*Trail{openTrail(t, st, o), openTrail(t, st, o)} // two relays, one trail
	const each = 25
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen = map[int64]bool{}
	)
	for w := range 4 {
		wg.Go(func() {
			for i := range each {
				index, err := trails[w%2].Append(t.Context(), testEntry(w*each+i))
				assert.NoError(t, err)
				mu.Lock()
				assert.False(t, seen[index], "index %d twice", index)
				seen[index] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, trail := range trails {
		requireWhole(t, trail, 4*each)
		require.NoError(t, trail.Close(t.Context()))
	}
	// Both have signed: the histories must be one.
	report, err := trails[0].Verify(t.Context())
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.EqualValues(t, 4*each, report.Signed)
}

func TestAppendIf(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.Shared = true
	one, other := openTrail(t, st, o), openTrail(t, st, o)
	ctx := t.Context()

	_, err := one.AppendIf(ctx, testEntry(0), 5)
	require.ErrorIs(t, err, ErrConflict)
	index, err := one.AppendIf(ctx, testEntry(0), -1)
	require.NoError(t, err)
	require.EqualValues(t, 0, index)
	_, err = other.AppendIf(ctx, testEntry(3), -1) // it has not seen entry 0 yet
	require.ErrorIs(t, err, ErrConflict)
	index, err = other.AppendIf(ctx, testEntry(1), -1) // another resource
	require.NoError(t, err)
	require.EqualValues(t, 1, index)
	index, err = one.AppendIf(ctx, testEntry(3), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, index)
	_, err = other.AppendIf(ctx, testEntry(6), 0)
	require.ErrorIs(t, err, ErrConflict)
	require.NoError(t, other.Close(ctx))
	require.NoError(t, one.Sign(ctx)) // nobody pins a first checkpoint while this one verifies
	requireWhole(t, one, 3)
}

func TestCheckpointsAreSignedNotes(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 7)
	require.NoError(t, trail.Close(t.Context()))

	pinned, err := os.ReadFile(trail.options.pinFile())
	require.NoError(t, err)
	verifier, err := note.NewVerifier(trail.PublicKey())
	require.NoError(t, err)
	n, err := note.Open(pinned, note.VerifierList(verifier))
	require.NoError(t, err)
	root := trail.treeNow().Root()
	require.Equal(t, fmt.Sprintf("example.com/trail\n7\n%s\n", root), n.Text)
}

func TestRefusedEntries(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	trail := openTrail(t, st, testOptions(t))
	secretEntry := func(raw string) Entry {
		e := testEntry(0)
		e.After = json.RawMessage(raw)
		return e
	}
	for name, tc := range map[string]struct {
		entry Entry
		want  error
	}{
		"api_key":  {secretEntry(`{"a":[{"api_key":"hunter22"}]}`), ErrSecret},
		"password": {secretEntry(`{"password":"hunter22"}`), ErrSecret},
		"escaped":  {secretEntry(`{"sec\u0072et":"hunter22"}`), ErrSecret},
		"names":    {Entry{Type: "x", Project: strings.Repeat("p", maxNames), Subject: "s", Time: testTime}, ErrTooLarge},
		"redacted": {secretEntry(`{"secret":"[redacted]","password_strength_config":"x","password":{"min":8},"kind":"RESET_PASSWORD"}`), nil},
	} {
		_, err := trail.Append(t.Context(), tc.entry)
		if tc.want == nil {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, tc.want, name)
		require.NotContains(t, err.Error(), "hunter22", name)
	}
	for _, e := range []Entry{{}, {Type: "x"}, {Type: "x", Project: "p", Subject: "s"}} {
		_, err := trail.Append(t.Context(), e)
		require.Error(t, err)
	}
	require.EqualValues(t, 1, trail.Size())
}

// Whole states count twice against what a store takes; large ones are compressed.
func TestLargeEntries(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	st.log(EntriesLog).limit = 1 << 20 // as a cluster's max_payload
	trail := openTrail(t, st, testOptions(t))
	html := func(bytes int, of string) json.RawMessage {
		text, x := make([]byte, bytes), uint64(1)
		for i := range text {
			x = x*6364136223846793005 + 1442695040888963407
			text[i] = of[int(x>>58)%len(of)]
		}
		raw, err := json.Marshal(map[string]string{"html_content": string(text)})
		require.NoError(t, err)
		return raw
	}
	e := testEntry(0)
	e.Before, e.After = html(1<<20, "<"), html(2<<20, "p")
	_, err := trail.Append(t.Context(), e)
	require.NoError(t, err)
	last, _, err := trail.Last(t.Context(), e.Project, e.Environment, e.Subject)
	require.NoError(t, err)
	require.JSONEq(t, string(e.After), string(last.After))

	const incompressible = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	e.Before, e.After = nil, html(900<<10, incompressible)
	_, err = trail.Append(t.Context(), e)
	require.NoError(t, err, "one such state fits")
	e.Before, e.After = html(900<<10, incompressible), html(900<<10, incompressible[1:])
	_, err = trail.Append(t.Context(), e)
	require.ErrorIs(t, err, ErrTooLarge)
	require.ErrorContains(t, err, "resource.0 of acme/live takes")
	require.ErrorContains(t, err, "and the store takes 1048576")
	e.Before, e.After = nil, html(33<<20, "p")
	_, err = trail.Append(t.Context(), e)
	require.ErrorIs(t, err, ErrTooLarge, "a reader's memory is bounded")
	requireWhole(t, trail, 2)
}

// Servers that went back to an earlier state refuse the next checkpoint. The trail is read
// back, and signs again.
func TestServersThatWentBackAreSignedFor(t *testing.T) {
	t.Parallel()
	st, _ := startStore(t, t.TempDir())
	o := testOptions(t)
	o.SignEvery = time.Hour
	trail := openTrail(t, st, o)
	appendEntries(t, trail, 0, 2)
	waitSigned(t, trail, 1)
	require.NoError(t, trail.lock(t.Context()))
	trail.keptSeq += 3 // as if three more had been kept, and were lost
	trail.unlock()
	appendEntries(t, trail, 2, 3)
	require.NoError(t, trail.Sign(t.Context()))
	requireWhole(t, trail, 3)
}
