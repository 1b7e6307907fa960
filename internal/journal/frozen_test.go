package journal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// freezing is the table of a relay that is frozen right before it writes a key.
type freezing struct {
	store.Table
	key            string
	frozen, goesOn chan struct{}
}

func freeze(j *shared, key string) *freezing {
	f := &freezing{j.table, key, make(chan struct{}), make(chan struct{})}
	j.table = f
	return f
}

func (f *freezing) wait(key string) {
	if key == f.key {
		close(f.frozen)
		<-f.goesOn
	}
}

func (f *freezing) Put(ctx context.Context, key string, data []byte, c store.If) (uint64, error) {
	f.wait(key)
	return f.Table.Put(ctx, key, data, c)
}

func (f *freezing) PutLazy(ctx context.Context, key string, data []byte, c store.If) error {
	f.wait(key)
	return f.Table.PutLazy(ctx, key, data, c)
}

// A relay with an older configuration is frozen before it registers a sink, and the sink is retired
// meanwhile. What it registers when it goes on keeps everything for the sink, moves nobody's
// position, and is retired again.
func TestAFrozenRelayRegistersARetiredSink(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
	j := share(t, srv.ClientURL(), func(o *Options) { o.Sinks = []string{"k"} })
	old := share(t, srv.ClientURL())
	j.set.TrimUnder(j.takes(t, "control"))
	k := j.under(t, j.takes(t, "sink/k"), "k")
	at := freeze(old, keysOf(0).sink+"gone")
	registered := make(chan error, 1)
	go func() { registered <- old.register(context.Background(), "gone") }()
	<-at.frozen
	j.under(t, j.takes(t, "sink/gone"), "gone").Close()
	require.NoError(t, j.Retire(t.Context(), "gone"))
	events := relaytest.Events(6)
	for i := range events {
		j.push(t, events[i:i+1])
	}
	read(t, k, 6, true)
	require.NoError(t, j.table.Sync(t.Context()))
	before, err := j.table.Get(t.Context(), keysOf(0).position+"k")
	require.NoError(t, err)

	close(at.goesOn)
	require.NoError(t, <-registered)
	require.NoError(t, j.trimAll(t))
	assert.Zero(t, j.Trimmed(), "the sink that is back has had nothing")
	after, err := j.table.Get(t.Context(), keysOf(0).position+"k")
	require.NoError(t, err)
	assert.Equal(t, before, after)
	require.NoError(t, j.Retire(t.Context(), "gone"))
	require.NoError(t, j.trimAll(t))
	assert.EqualValues(t, 6, j.Trimmed())
}

// A relay is frozen while it retires a sink, and the sink comes back meanwhile. When the relay goes
// on, it removes neither the sink's position nor its name.
func TestAFrozenRelayRetiresNothingThatCameBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"before the position": keysOf(0).position, "before the name": keysOf(0).sink} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Run(t, t.TempDir(), natstest.SyncAlways)
			j, old := share(t, srv.ClientURL()), share(t, srv.ClientURL())
			events := relaytest.Events(3)
			j.under(t, j.takes(t, "sink/back"), "back").Close()
			require.NoError(t, j.table.Sync(t.Context()))
			at := freeze(old, before+"back")
			retired := make(chan error, 1)
			go func() { retired <- old.Retire(context.Background(), "back") }()
			<-at.frozen
			if before == keysOf(0).position {
				require.NoError(t, j.Retire(t.Context(), "back"))
			}
			back := j.under(t, j.takes(t, "sink/back"), "back")
			j.push(t, events)
			read(t, back, 3, true)
			require.NoError(t, j.table.Sync(t.Context()))
			was, err := j.table.Get(t.Context(), keysOf(0).position+"back")
			require.NoError(t, err)
			require.NotNil(t, was.Data)

			close(at.goesOn)
			require.ErrorIs(t, <-retired, store.ErrConflict)
			for _, key := range []string{keysOf(0).position, keysOf(0).sink} {
				is, err := j.table.Get(t.Context(), key+"back")
				require.NoError(t, err)
				assert.NotNil(t, is.Data, key)
			}
			is, err := j.table.Get(t.Context(), was.Key)
			require.NoError(t, err)
			assert.Equal(t, was, is)
		})
	}
}
