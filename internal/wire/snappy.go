package wire

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/snappy"
)

// ErrSnappy means the body is no snappy block.
var ErrSnappy = errors.New("the body is no snappy block")

// maxRatio bounds the growth of a snappy block: its densest element is a copy of 64 bytes
// in three.
const maxRatio = 22

// UnsnappyLen returns the decompressed length by a snappy block's own word. It refuses
// impossible lengths, so it is safe to allocate that much.
func UnsnappyLen(src []byte) (int, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSnappy, err)
	}
	if n > len(src)*maxRatio {
		return 0, fmt.Errorf("%w: its length lies: %d bytes cannot decompress to %d", ErrSnappy, len(src), n)
	}
	return n, nil
}

// Unsnappy decompresses src into dst's memory, or into new memory if dst is too small.
func Unsnappy(dst, src []byte) ([]byte, error) {
	if _, err := UnsnappyLen(src); err != nil {
		return nil, err
	}
	out, err := snappy.Decode(dst[:cap(dst)], src)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnappy, err)
	}
	return out, nil
}
