package natstest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lying listens at the address that it returns, greets as a server does, and gives an answer to each
// message.
func Lying(tb testing.TB, answer string) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go lie(c, answer)
		}
	}()
	return l.Addr().String()
}

func lie(c net.Conn, answer string) {
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, `INFO {"server_id":"x","version":"2.15.2","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch {
		case strings.HasPrefix(lines.Text(), "PING"):
			_, _ = io.WriteString(c, "PONG\r\n")
		case strings.HasPrefix(lines.Text(), "HPUB"), strings.HasPrefix(lines.Text(), "PUB"):
			_, _ = io.WriteString(c, answer)
		}
	}
}
