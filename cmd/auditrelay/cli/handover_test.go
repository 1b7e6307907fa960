package cli

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheSocketOfAServiceManager plays systemd's side of sd_listen_fds(3).
func TestTheSocketOfAServiceManager(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	file, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for _, c := range []struct{ pid, count, names, wrong string }{
		{"1", "1", "ingest", ""}, // of another process
		{strconv.Itoa(os.Getpid()), "0", "", ""},
		{strconv.Itoa(os.Getpid()), "1", "auditrelay.socket", "FileDescriptorName=ingest"},
		{strconv.Itoa(os.Getpid()), "2", "ingest:ingest", "hands over 2 listening sockets"},
		{strconv.Itoa(os.Getpid()), "1", "ingest", "taken"},
		{strconv.Itoa(os.Getpid()), "1", "", "taken"},
	} {
		fd, err := syscall.Dup(int(file.Fd()))
		require.NoError(t, err)
		t.Setenv(listenPID, c.pid)
		t.Setenv(listenFDs, c.count)
		t.Setenv(listenNames, c.names)
		t.Setenv(listenFirst, strconv.Itoa(fd))
		socket, err := handedOver()
		for _, name := range []string{listenPID, listenFDs, listenNames, listenFirst} {
			_, set := os.LookupEnv(name)
			assert.False(t, set, "a command of the relay's must not see %s", name)
		}
		switch c.wrong {
		case "":
			require.NoError(t, err)
			assert.Nil(t, socket.File(), "%+v", c)
		case "taken":
			require.NoError(t, err)
			got, err := net.FileListener(socket.File())
			require.NoError(t, err)
			assert.Equal(t, listener.Addr(), got.Addr())
			require.NoError(t, got.Close())
			require.NoError(t, socket.File().Close())
			continue
		default:
			require.ErrorContains(t, err, c.wrong)
		}
		require.NoError(t, syscall.Close(fd))
	}
}
