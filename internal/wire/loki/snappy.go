package loki

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/snappy"
)

// ErrSnappy says that a body is no snappy block.
var ErrSnappy = errors.New("the body is no snappy block")

// maxRatio is how much a snappy block can grow at most: its densest element
// is a copy of 64 bytes in three.
const maxRatio = 22

// UnsnappyLen returns the length that a snappy block says it decompresses to,
// checked for what it can decompress to at all, so that memory may be made
// ready for it.
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

// Unsnappy decompresses src into the memory of dst, which it replaces where
// that is too small.
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
