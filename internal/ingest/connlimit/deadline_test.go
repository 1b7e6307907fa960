package connlimit

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timed counts the deadlines that a connection gets.
type timed struct {
	net.Conn
	reads int
}

func (c *timed) SetReadDeadline(t time.Time) error {
	c.reads++
	return c.Conn.SetReadDeadline(t)
}

func TestAConnectionGetsTheDeadlinesThatMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		raw := &timed{Conn: ours}
		c := &conn{Conn: raw}
		buf := make([]byte, 8)
		ends := func(in time.Duration) {
			t.Helper()
			begun := time.Now()
			_, err := c.Read(buf)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			assert.Equal(t, in, time.Since(begun))
		}
		for range 10 {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		assert.Zero(t, raw.reads, "nobody reads")
		ends(time.Minute)
		assert.Equal(t, 1, raw.reads)

		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		ends(time.Minute)
		assert.Equal(t, 2, raw.reads, "one that is over does not serve again")

		require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
		for range 3 { // as busy senders do
			go func() { _, _ = theirs.Write([]byte("push")) }()
			_, err := c.Read(buf)
			require.NoError(t, err)
			time.Sleep(2 * time.Second)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
		}
		assert.Equal(t, 3, raw.reads, "the one that it has will do")
		time.Sleep(10 * time.Second)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
		ends(2 * time.Minute)
		assert.Equal(t, 4, raw.reads)

		require.NoError(t, c.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Hour, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
		ends(time.Hour) // a read under way gets its deadline at once
	})
}

// Once a client is trusted, net/http does not wait for it to leave during a request.
func TestATrustedClientIsNotWatched(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := &conn{Conn: ours}
	go func() { _, _ = theirs.Write([]byte("12")) }()
	one := make([]byte, 1)
	n, err := c.Read(one)
	require.NoError(t, err)
	assert.Equal(t, 1, n, "a stranger is")
	c.trusted.Store(true)
	n, err = c.Read(one)
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = c.Read(make([]byte, 2))
	require.NoError(t, err)
	assert.Equal(t, 1, n, "what it has sent meanwhile is read with the next request")
}
