package nats

import (
	"context"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// checked returns the findings, one per line.
func checked(t *testing.T, srv *server.Server, change func(*config.NATS)) (string, error) {
	t.Helper()
	text := ""
	err := newSink(t, srv.Addr().String(), change).Check(t.Context(), func(what, found string) { text += what + ": " + found + "\n" })
	return text, err
}

func TestCheckFindsTheStreamAndWritesNothing(t *testing.T) {
	t.Parallel()
	srv := startServer(t, func(o *server.Options) { o.MaxPayload = 300_000 })
	stream := createTestStream(t, dial(t, srv), func(c *jetstream.StreamConfig) {
		c.MaxMsgSize, c.MaxBytes, c.Discard = 200_000, 1<<20, jetstream.DiscardNew
	})
	found, err := checked(t, srv, nil)
	require.NoError(t, err)
	for _, want := range []string{
		"server: " + srv.Addr().String() + " takes the connection, in the clear, version " + server.VERSION + "\n",
		"max_payload: 300000 bytes",
		"jetstream: answers\n",
		"stream EVENTS: takes auditrelay.>; 1 replicas in file storage\n",
		"stream EVENTS: max message size 200000 bytes, max bytes 1048576; refuses new messages when it is full",
		"stream EVENTS: stores a redelivery within 2m0s once\n",
	} {
		assert.Contains(t, found, want)
	}
	assert.Empty(t, arrived(t, stream))

	found, err = checked(t, srv, func(c *config.NATS) { c.Mode = "core" })
	require.NoError(t, err)
	assert.NotContains(t, found, "EVENTS")
}

// A stream may lose messages even after it has acknowledged them.
func TestCheckNamesWhatIsNotDurable(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"warning: it is kept in memory":          func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"warning: it has persist_mode async":     func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"takes auditrelay.>; 1 replicas in file": func(*jetstream.StreamConfig) {},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, func(*server.Options) {})
			createTestStream(t, dial(t, srv), change)
			found, err := checked(t, srv, nil)
			require.NoError(t, err)
			assert.Contains(t, found, "stream EVENTS: "+want)
		})
	}
}

func TestCheckNamesWhatFails(t *testing.T) {
	t.Parallel()
	const wrong = "wrong-horse-battery"
	for name, one := range map[string]struct {
		server func(*server.Options)
		stream func(*jetstream.StreamConfig)
		change func(*config.NATS)
		want   string // of the error; "" for none
		found  string
	}{
		"wrong password": {change: func(c *config.NATS) { c.Password = secret.New(wrong) }, want: "Authorization Violation", found: "server: connect to NATS at "},
		"wrong port":     {change: func(c *config.NATS) { c.URL = "nats://127.0.0.1:1" }, want: "connection refused", found: "server: connect to NATS at 127.0.0.1:1"},
		"no stream":      {change: func(c *config.NATS) { c.Subject = "elsewhere.{type}" }, want: "no stream takes it: make one, or set create_stream", found: "subject elsewhere.>: "},
		"no JetStream":   {server: func(o *server.Options) { o.JetStream = false }, want: "enable it, or set mode: core", found: "jetstream: "},
		"stream to be made": {
			change: func(c *config.NATS) { c.Subject, c.CreateStream = "elsewhere.{type}", "LATER" },
			found:  "stream LATER: would be created over elsewhere.>",
		},
		"overlapping stream": {change: func(c *config.NATS) { c.CreateStream = "LATER" }, want: "stream EVENTS has a part of it", found: "stream LATER: "},
		"a part":             {stream: func(c *jetstream.StreamConfig) { c.Subjects = []string{"auditrelay.acme.>"} }, found: "no one stream takes all of it"},
		"no acknowledgements": {
			stream: func(c *jetstream.StreamConfig) { c.NoAck = true }, want: "stream EVENTS: it acknowledges nothing",
			found: "stream EVENTS: has no limits",
		},
		"may not ask": {server: onlyEvents, want: "", found: "jetstream: its API may not be asked, so the streams are not known: nats: permissions violation"},
		"may not ask to create": {
			server: onlyEvents, change: func(c *config.NATS) { c.CreateStream = "LATER" },
			want: "create_stream needs its API, and it does not answer", found: "permissions violation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, one.server)
			if one.server == nil {
				createTestStream(t, dial(t, srv), one.stream)
			}
			found, err := checked(t, srv, one.change)
			assert.Contains(t, found, one.found)
			assert.NotContains(t, found, wrong)
			if one.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, one.want)
			}
			if one.server == nil {
				js, err := jetstream.New(dial(t, srv))
				require.NoError(t, err)
				_, err = js.Stream(t.Context(), "LATER")
				require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "nothing may be created")
			}
		})
	}
}

// onlyEvents allows the test's user to publish events, and nothing else.
func onlyEvents(o *server.Options) {
	o.Username, o.Password = "", ""
	o.Users = []*server.User{{Username: testUser, Password: testPassword, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"auditrelay.>"}},
	}}}
}

func TestCheckOfAFullStream(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	createTestStream(t, dial(t, srv), func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 3, jetstream.DiscardNew })
	require.NoError(t, newSink(t, srv.Addr().String(), nil).Deliver(t.Context(), relaytest.Events(3)))
	_, err := checked(t, srv, nil)
	require.ErrorContains(t, err, "stream EVENTS: it is full")
}

func TestCheckEndsWithItsContext(t *testing.T) {
	t.Parallel()
	srv := startServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	err := newSink(t, srv.Addr().String(), nil).Check(ctx, func(what, _ string) {
		if what == "max_payload" {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"a.>", "a.*.b", true},
		{"a.>", "a", false},
		{">", "a", true},
		{"a.*.*", "a.*.b", true},
		{"a.*.b", "a.*.*", false},
		{"a.x.>", "a.*.b", false},
		{"a.*", "a.*.b", false},
		{"a.*.b.c", "a.*.b", false},
		{"a.b", "a.b", true},
	} {
		assert.Equal(t, c.want, covers(c.filter, c.subject), "%s, %s", c.filter, c.subject)
	}
}
