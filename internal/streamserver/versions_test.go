package streamserver

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/record"
)

func TestAStreamOfALaterVersionRefusesTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conn := connected(t, dir, testConfig)
	stream := jetstream.StreamConfig{Name: "TEST_EVENTS", Subjects: []string{"test.events"}, Metadata: Metadata("v1.2.3")}
	_, err := conn.JetStream.CreateStream(t.Context(), stream)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	conn = connected(t, dir, testConfig)
	stream.Metadata = map[string]string{metaRecordVersion: "2", metaProgram: "v9.1.0"}
	_, err = conn.JetStream.UpdateStream(t.Context(), stream)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = Connect(t.Context(), dir, testConfig, silent)
	require.ErrorIs(t, err, record.ErrVersion)
	assert.ErrorContains(t, err, "auditrelay v9.1.0 writes records of version 2, this one reads up to 1")
}

// The blocks of an external server are not the relay's to look into.
func TestAnExternalRecordOfALaterVersionRefusesTheStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig
	cfg.URL = startExternal(t).ClientURL()
	conn := connected(t, t.TempDir(), cfg)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err := conn.JetStream.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TEST_EVENTS", Subjects: []string{"test.events"}})
	require.NoError(t, err)
	_, err = conn.JetStream.Publish(t.Context(), "test.events", []byte("ARJ2 and more"))
	require.NoError(t, err)
	_, err = Connect(t.Context(), t.TempDir(), cfg, silent)
	require.ErrorIs(t, err, record.ErrVersion)
	assert.ErrorContains(t, err, "stream TEST_EVENTS, position 1")
}
