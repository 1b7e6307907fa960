// Package natsguard checks the lengths that a NATS server announces before its client believes them.
package natsguard

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
)

const (
	// maxLine bounds a line of a server's, in bytes. The longest, its greeting, is far shorter.
	maxLine = 1 << 20
	// maxMessage bounds a message. No server takes a larger one (max_payload).
	maxMessage = 64 << 20
)

// Dialer is that of a connection whose lengths are checked: see [Conn].
type Dialer struct{ net.Dialer }

// Dial implements nats.CustomDialer.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return Conn(conn), nil
}

// Conn checks the lengths on a new connection of a client. The client makes room for a message of any
// length that its line names, and ends the process where there is no such length: a line of 30 bytes is
// enough. What comes by TLS or by a WebSocket cannot be seen here.
func Conn(conn net.Conn) net.Conn { return &guarded{Conn: conn} }

type guarded struct {
	net.Conn

	asked, veiled bool   // the client has written, and what it wrote is no plain text
	line          []byte // of a line whose end has not come
	skip          int    // bytes of a message that are to come
	tail          bool   // then all up to the next line's end is ignored, as by the client
	bad           error
}

func (g *guarded) Write(b []byte) (int, error) {
	if !g.asked { // this is before the client's goroutines are there
		g.asked, g.veiled = true, !bytes.HasPrefix(b, []byte("CONNECT "))
	}
	return g.Conn.Write(b)
}

func (g *guarded) Read(b []byte) (int, error) {
	if g.bad != nil {
		return 0, g.bad
	}
	n, err := g.Conn.Read(b)
	if g.veiled {
		return n, err
	}
	if g.bad = g.check(b[:n]); g.bad != nil {
		return 0, g.bad
	}
	return n, err
}

// check follows the lines through b, the next bytes of the stream.
func (g *guarded) check(b []byte) error {
	for len(b) > 0 {
		if g.skip > 0 {
			n := min(g.skip, len(b))
			g.skip -= n
			b = b[n:]
			continue
		}
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			g.line = append(g.line, b...)
			if len(g.line) > maxLine {
				return fmt.Errorf("the server's line begins with %q and has no end: it is no NATS server", g.line[:16])
			}
			return nil
		}
		line := b[:end]
		if len(g.line) > 0 {
			line = append(g.line, line...)
			g.line = line[:0]
		}
		b = b[end:]
		if err := g.follow(line); err != nil {
			return err
		}
	}
	return nil
}

// follow takes in a whole line. That of a message has its size at the end.
func (g *guarded) follow(line []byte) error {
	if g.tail {
		g.tail = false
		return nil
	}
	if !begins(line, "MSG") && !begins(line, "HMSG") {
		return nil
	}
	words := bytes.TrimRight(line, " \t\r\n")
	size, err := strconv.Atoi(string(words[bytes.LastIndexAny(words, " \t\r")+1:]))
	if err != nil || size < 0 || size > maxMessage {
		return fmt.Errorf("the server announces a message by %q: it is no NATS server, or a hostile one", line[:min(len(line), 64)])
	}
	g.skip, g.tail = size+1, true // the client takes the byte after a message for the start of its end
	return nil
}

// begins reports whether a line begins with a word, in letters of either case.
func begins(line []byte, word string) bool {
	return len(line) >= len(word) && strings.EqualFold(string(line[:len(word)]), word)
}
