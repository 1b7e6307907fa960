package journal

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// small is a configuration with segments of 128 KiB, so that each record of [opened.fill]
// has one of its own.
func small() config.Journal {
	cfg := testConfig
	cfg.MaxBytes = 4 << 20
	return cfg
}

// fill appends n events, each in a segment of its own.
func (o *opened) fill(t *testing.T, n int) {
	t.Helper()
	next := noise(1, "s", 100_000)
	for range n {
		require.NoError(t, o.Append(t.Context(), next()))
	}
}

// trimAll trims whatever every sink has had, whatever its age, and returns how
// many records went.
func (o *opened) trimAll(t *testing.T) (uint64, error) {
	t.Helper()
	return o.Trim(t.Context(), time.Now().Add(time.Hour))
}

func TestNothingIsTrimmedWhileAPositionCannotBeBelieved(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), small())
	j.source(t, "gone").Close()
	k := j.source(t, "k")
	defer k.Close()
	j.fill(t, 3)
	read(t, k, 3, true)
	require.NoError(t, j.table.PutLazy(t.Context(), keysOf(0).position+"gone", []byte(`{"version":1,"sink":"k","position":3}`), store.If{}))

	n, err := j.trimAll(t)
	require.ErrorIs(t, err, errUncertain)
	require.ErrorContains(t, err, `that of sink gone: it is of the sink "k"`)
	assert.Zero(t, n)
	assert.Equal(t, 1.0, testutil.ToFloat64(j.metrics.doubts))
	list, err := j.Sinks(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, `its position cannot be believed: it is of the sink "k"`, list[0].Unknown)
	assert.Empty(t, list[1].Unknown)

	require.NoError(t, j.Retire(t.Context(), "gone"))
	require.ErrorIs(t, j.Retire(t.Context(), "gone"), ErrNoPosition)
	n, err = j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	assert.Zero(t, testutil.ToFloat64(j.metrics.doubts))
}

// Each of a sink's two values is enough for everything to be kept.
func TestASinkIsRegisteredByEitherValue(t *testing.T) {
	t.Parallel()
	for _, key := range []string{keysOf(0).sink, keysOf(0).position} {
		j := open(t, t.TempDir(), small())
		j.source(t, "late").Close()
		k := j.source(t, "k")
		j.fill(t, 3)
		read(t, k, 3, true)
		k.Close()
		var err error
		if key == keysOf(0).sink {
			_, err = j.table.Put(t.Context(), key+"late", nil, store.If{})
		} else {
			err = j.table.PutLazy(t.Context(), key+"late", nil, store.If{})
		}
		require.NoError(t, err)
		n, err := j.trimAll(t)
		require.NoError(t, err)
		assert.Zero(t, n)
		late := j.source(t, "late")
		assert.Len(t, read(t, late, 3, false), 3)
		late.Close()
	}
}

// A record that a sink acknowledges after the log's state was asked for raises no doubt: on a
// cluster there is much time between the two.
func TestAPositionNewerThanTheLookAtTheLogRaisesNoDoubt(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), testConfig)
	events := relaytest.Events(2)
	o.push(t, events[:1])
	before, err := o.state(t.Context())
	require.NoError(t, err)
	o.push(t, events[1:])
	s := o.source(t, "a")
	assert.Len(t, read(t, s, 2, true), 2)
	lowest, some, err := o.lowest(t.Context(), &before)
	require.NoError(t, err)
	assert.True(t, some)
	assert.Equal(t, before.End, lowest, "nothing is trimmed beyond that look")
	s.Close()
	at, why, err := o.position(t.Context(), "a", &before)
	require.NoError(t, err)
	assert.Empty(t, why)
	assert.Equal(t, before.End+1, at.pos)
}

func TestNothingIsTrimmedBeforeAConfiguredSinkIsOpened(t *testing.T) {
	t.Parallel()
	o := open(t, t.TempDir(), small(), func(opts *Options) { opts.Sinks = []string{"k", "new"} })
	k := o.source(t, "k")
	defer k.Close()
	o.fill(t, 3)
	read(t, k, 3, true)
	n, err := o.trimAll(t)
	require.NoError(t, err)
	assert.Zero(t, n)
	fresh := o.source(t, "new")
	defer fresh.Close()
	assert.Len(t, read(t, fresh, 3, true), 3)
	n, err = o.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
}

// A clock that is set ahead makes no record old, and one that is set back makes none young.
func TestTheClockOfTheTrims(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), testConfig)
	assert.WithinDuration(t, time.Now(), j.now(), time.Minute)
	j.opened = j.opened.Add(-time.Hour) // as if an hour by the monotonic clock had not passed
	assert.False(t, j.now().After(time.Now()))
}

// emptied is a table that lost its values while the journal used it, as a cluster may.
type emptied struct{ store.Table }

func (e emptied) Get(_ context.Context, key string) (store.Value, error) {
	return store.Value{Key: key, Doubtful: true}, nil
}

func (e emptied) List(context.Context, string) ([]store.Value, error) { return nil, nil }

// Where the store lost the positions of the configured sinks, nothing is trimmed, and a sink
// that is opened gets everything again.
func TestNothingIsTrimmedAfterATableIsLost(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), small(), func(o *Options) { o.Sinks = []string{"k"} })
	k := j.source(t, "k")
	j.fill(t, 3)
	read(t, k, 3, true)
	k.Close()
	kept := j.table
	j.table = emptied{kept}
	n, err := j.trimAll(t)
	require.ErrorIs(t, err, errUncertain)
	require.ErrorContains(t, err, "that of sink k: values of the store's table were lost")
	assert.Zero(t, n)
	k = j.source(t, "k")
	defer k.Close()
	assert.Equal(t, 1.0, testutil.ToFloat64(j.metrics.distrusted))
	j.table = kept // now with what the source wrote
	read(t, k, 3, true)
	n, err = j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
}

// What has no digest in the trail yet is not too old to be kept, and yet gives way to pushes.
func TestRecordsWaitForTheirDigest(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), small())
	k := j.source(t, "k")
	defer k.Close()
	j.fill(t, 10)
	read(t, k, 10, true)
	through := uint64(3)
	j.KeepAfter(func() uint64 { return through })
	n, err := j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 3, n)
	through = 5
	n, err = j.trimAll(t)
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	for j.Trimmed() < 6 {
		j.fill(t, 1)
		read(t, k, 1, true)
	}
}
