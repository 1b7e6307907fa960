package console

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client asks an address that exists within the socket only, which helps nobody.
func TestAnErrorOfTheSocketNamesNoAddressWithin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, socketName))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close() // as a relay does that ends
		}
	}()
	_, err = NewClient(dir).Status(t.Context(), AskStatus{})
	require.ErrorContains(t, err, "ask the relay on "+dir)
	assert.NotContains(t, err.Error(), "http:")
}
