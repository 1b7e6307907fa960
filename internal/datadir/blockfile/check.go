package blockfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Checker checks blocks one after the other, with memory for one frame. The zero
// Checker is ready.
type Checker struct {
	reader *bufio.Reader
	memory []byte
}

// Checked is a block, read to its end or to its first unsound frame.
type Checked struct {
	Summary
	Plain bool // there is a Summary: see Summarise
	Sound bool // all frames are sound
}

// Check reads a block of the stream.
func (c *Checker) Check(stream, path string) (_ Checked, err error) {
	index, err := IndexOf(path)
	if err != nil {
		return Checked{}, err
	}
	if err := Regular(path); err != nil {
		return Checked{}, fmt.Errorf("check block: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Checked{}, fmt.Errorf("check block: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if c.reader == nil {
		c.reader = bufio.NewReaderSize(nil, 64<<10)
	}
	c.reader.Reset(f)
	if begin, _ := c.reader.Peek(len(natsserver.CompressedPrefix)); string(begin) == natsserver.CompressedPrefix {
		return Checked{}, fmt.Errorf("%w: %s is compressed", ErrForm, path)
	}
	return c.frames(New(stream, path, index, nil))
}

// frames reads frame by frame into b.
func (c *Checker) frames(b *Block) (Checked, error) {
	all, hash := newSumming(b.Index, func(uint64) bool { return false }), b.hash()
	for {
		sound, err := c.next()
		if errors.Is(err, io.EOF) {
			s, plain := all.result()
			return Checked{s, plain, true}, nil
		}
		if err != nil {
			return Checked{}, fmt.Errorf("check block %s: %w", b.Path, Unreadable(err))
		}
		b.Bytes = c.memory
		f, whole := b.frame(0, hash)
		if !sound || !whole {
			return Checked{}, nil
		}
		all.take(&f)
	}
}

// next reads the next frame into memory, unless it is cut short or has an impossible
// length. It returns io.EOF at the end.
func (c *Checker) next() (sound bool, err error) {
	c.memory = c.memory[:0]
	length, err := c.reader.Peek(4)
	if errors.Is(err, io.EOF) && len(length) > 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	size := int(binary.LittleEndian.Uint32(length) &^ natsserver.HeadersBit)
	if size < natsserver.FrameMin || size > natsserver.FrameMax {
		return false, nil
	}
	c.memory = slices.Grow(c.memory, size)[:size]
	_, err = io.ReadFull(c.reader, c.memory)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	return true, err
}
