package datadir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

// Single messages are those of a pass over the stream: over several blocks, with headers,
// without deleted ones and those in damaged bytes.
func TestSingleMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	js, stop := natstest.Serve(t, filepath.Join(dir, "jetstream"))
	const n = 400
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgs: n - 10})
	require.NoError(t, err)
	for i := range n {
		msg := nats.NewMsg(fmt.Sprintf("s.%d", i%7))
		msg.Data = make([]byte, 60<<10)
		copy(msg.Data, fmt.Sprint(i))
		if i%3 == 0 {
			msg.Header.Set("Number", fmt.Sprint(i))
		}
		_, err := js.PublishMsg(t.Context(), msg)
		require.NoError(t, err)
	}
	require.NoError(t, stream.DeleteMsg(t.Context(), 200))
	stop()
	o, err := OpenOffline(dir, Layout{Events: "E"})
	require.NoError(t, err)
	defer func() { require.NoError(t, o.Close()) }()
	paths, err := blockfile.List(o.streamDir("S"))
	require.NoError(t, err)
	require.Greater(t, len(paths), 2)
	damage, err := os.OpenFile(paths[1], os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = damage.WriteAt([]byte("damage"), 100<<10)
	require.NoError(t, err)
	require.NoError(t, damage.Close())

	type message struct {
		subject string
		header  nats.Header
		data    string
	}
	want := map[uint64]message{}
	_, err = o.Read(t.Context(), "S", nil, func(seq uint64, subject string, header nats.Header, data []byte) error {
		want[seq] = message{subject, header, string(data)}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, want, n-10-2, "ten were trimmed, one deleted, and one damaged")
	m, err := o.Messages(t.Context(), "S")
	require.NoError(t, err)
	for seq := range uint64(n + 2) {
		subject, header, data, found, err := m.Get(seq)
		require.NoError(t, err)
		one, there := want[seq]
		require.Equal(t, there, found, "%d", seq)
		require.Equal(t, one, message{subject, header, string(data)})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = o.Messages(ended, "S")
	require.ErrorIs(t, err, context.Canceled)
}
