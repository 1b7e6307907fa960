package kafka

import (
	"encoding/binary"
	"fmt"
	"net"
)

// maxAnswer bounds one answer of a broker, in bytes. The largest answer, the metadata of a
// delivery's topics, is far smaller.
const maxAnswer = 32 << 20

// framed checks the length that precedes each answer. A peer that is no Kafka broker (a TLS
// listener, a web server) is then reported as such, and neither waited for nor given memory.
type framed struct {
	net.Conn

	head  [4]byte
	have  int // bytes of head read so far
	inner int // bytes of the frame that are still to come
	bad   error
}

// Read repeats its error, since kafka-go reads on after one in order to empty the frame.
func (f *framed) Read(b []byte) (int, error) {
	if f.bad != nil {
		return 0, f.bad
	}
	n, err := f.Conn.Read(b)
	if f.bad = f.check(b[:n]); f.bad != nil {
		return 0, f.bad
	}
	return n, err
}

// check follows the frames through b, the next bytes of the stream.
func (f *framed) check(b []byte) error {
	for len(b) > 0 {
		if f.inner > 0 {
			n := min(f.inner, len(b))
			f.inner -= n
			b = b[n:]
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have < len(f.head) {
			return nil
		}
		f.have = 0
		size := binary.BigEndian.Uint32(f.head[:])
		if size > maxAnswer {
			return fmt.Errorf("answer begins with %q, which is not Kafka's protocol: check the port, and whether it expects TLS", f.head)
		}
		f.inner = int(size)
	}
	return nil
}
