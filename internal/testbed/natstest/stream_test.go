package natstest

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAStreamIsReadBack(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.TempDir())
	require.NoError(t, err)
	defer srv.Close()
	stream := srv.Stream("S")
	n, err := stream.Count(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "the stream does not exist yet")

	_, err = srv.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} {
		_, err := srv.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: "s", Header: nats.Header{"ce-id": {id}}, Data: []byte("body of " + id)})
		require.NoError(t, err)
	}
	n, err = stream.Count(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	var got []string
	require.NoError(t, stream.Read(t.Context(), func(id string, body []byte) { got = append(got, id+": "+string(body)) }))
	assert.Equal(t, []string{"a: body of a", "b: body of b"}, got)
}
