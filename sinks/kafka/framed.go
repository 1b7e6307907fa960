package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/segmentio/kafka-go/protocol"
)

// maxAnswer bounds one answer of a broker, in bytes. The largest answer, the metadata of a
// delivery's topics, is far smaller.
const maxAnswer = 32 << 20

// framed reads one answer after the other, and checks it before kafka-go sees it. A peer that is no
// Kafka broker (a TLS listener, a web server) is then reported as such, and neither waited for nor
// given memory.
type framed struct {
	net.Conn

	in    *bufio.Reader
	check func(answer []byte) error // of the answer that is waited for, without its length
	frame bytes.Buffer              // its length and the answer, as far as they are not read
	bad   error
}

func newFramed(c net.Conn) *framed { return &framed{Conn: c, in: bufio.NewReader(c)} }

// Read repeats its error, since kafka-go reads on after one in order to empty the frame.
func (f *framed) Read(b []byte) (int, error) {
	if f.frame.Len() == 0 && f.bad == nil {
		f.bad = f.next()
	}
	if f.bad != nil {
		return 0, f.bad
	}
	return f.frame.Read(b)
}

// next takes in an answer.
func (f *framed) next() error {
	var head [4]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxAnswer {
		return fmt.Errorf("answer begins with %q, which is not Kafka's protocol: check the port, and whether it expects TLS", head)
	}
	if f.frame.Reset(); f.frame.Cap() > maxKeptBody {
		f.frame = bytes.Buffer{}
	}
	f.frame.Write(head[:])
	if _, err := io.CopyN(&f.frame, f.in, int64(size)); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	return f.check(f.frame.Bytes()[len(head):])
}

// expect says which request the next answer is to. That to a SASL message of the first version has
// no form of its own.
func (f *framed) expect(key protocol.ApiKey, versions map[protocol.ApiKey]int16) {
	f.check = func(answer []byte) error {
		if key == protocol.SaslAuthenticate && versions[protocol.SaslHandshake] == 0 {
			return nil
		}
		return check(answer, key, versions[key])
	}
}
