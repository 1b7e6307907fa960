// Package blockfile reads nats-server's files of a stream, while no server has them open.
//
// It exists because the server cannot be asked about damage: when it rebuilds a block
// (after every crash), it cuts the file off at the first record with a bad checksum, and
// all good records behind it are gone. So the relay reads and mends the files before a
// server opens them.
//
// Package natsserver has the layout of the files.
package blockfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// ErrForm marks a compressed or encrypted file, or one in an unknown format. It may be
// sound.
var ErrForm = errors.New("the file is in a form unknown to this version")

// Kind is the kind of a frame.
type Kind int

// The kinds of frames.
const (
	Message   Kind = iota // a message
	Erased                // the place of a deleted message
	Tombstone             // a note on the deletion of an earlier message
	Damaged               // bytes without a frame
)

// Frame is one record of a block, or a run of damaged bytes between two.
type Frame struct {
	Offset, Size int
	Kind         Kind
	Seq          uint64 // zero where Damaged
	Time         time.Time
	Subject      string
	Header, Data []byte // parts of the block
}

// Block is one file as read.
type Block struct {
	Path  string
	Index uint32
	Bytes []byte
	// Holed means the disk did not give all bytes: there are zeros in place of some.
	Holed bool
	key   [32]byte
}

// List lists the blocks of a stream's directory, oldest first. A missing directory has
// none.
func List(streamDir string) ([]string, error) {
	dir := filepath.Join(streamDir, natsserver.MessagesDir)
	entries, err := readDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list blocks: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, err := IndexOf(e.Name()); err == nil && strings.HasSuffix(e.Name(), natsserver.BlockSuffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		i, _ := IndexOf(a)
		j, _ := IndexOf(b)
		return int(int64(i) - int64(j))
	})
	return names, nil
}

// IndexOf is the number in a block's name.
func IndexOf(path string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), natsserver.BlockSuffix), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read the number of block %s: %w", path, err)
	}
	return uint32(n), nil
}

// Read reads a block of the stream, around bad sectors.
func Read(stream, path string) (*Block, error) {
	index, err := IndexOf(path)
	if err != nil {
		return nil, err
	}
	data, err := ReadFile(path)
	holed := errors.Is(err, ErrUnreadable)
	if holed {
		data, err = readAround(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read block: %w", err)
	}
	if bytes.HasPrefix(data, []byte(natsserver.CompressedPrefix)) {
		return nil, fmt.Errorf("%w: %s is compressed", ErrForm, path)
	}
	if _, err := os.Stat(strings.TrimSuffix(path, natsserver.BlockSuffix) + natsserver.KeySuffix); err == nil {
		return nil, fmt.Errorf("%w: %s is encrypted", ErrForm, path)
	}
	b := New(stream, path, index, data)
	b.Holed = holed
	return b, nil
}

// New makes a block in memory.
func New(stream, path string, index uint32, data []byte) *Block {
	return &Block{Path: path, Index: index, Bytes: data, key: natsserver.BlockKey(stream, index)}
}

// Frames returns all frames of the block: their sizes add up to the file's. after is the
// newest sequence of the blocks before it.
//
// Behind damage it searches for the next whole frame with a good checksum and a later
// sequence.
func (b *Block) Frames(after uint64) []Frame {
	var frames []Frame
	sum := b.hash()
	for at := 0; at < len(b.Bytes); {
		f, ok := b.frame(at, sum)
		if !ok {
			next := b.resync(at+1, after, sum)
			f = Frame{Offset: at, Size: next - at, Kind: Damaged}
		}
		if f.Kind == Message || f.Kind == Erased {
			after = max(after, f.Seq)
		}
		frames = append(frames, f)
		at += f.Size
	}
	return frames
}

func (b *Block) hash() hash.Hash64 {
	h, _ := highwayhash.New64(b.key[:]) // fails only for a key of another size
	return h
}

// resync finds the next frame, or the file's end.
func (b *Block) resync(from int, after uint64, sum hash.Hash64) int {
	const reach = 1 << 24 // a block never holds more messages
	for at := from; at+natsserver.FrameMin <= len(b.Bytes); at++ {
		seq := binary.LittleEndian.Uint64(b.Bytes[at+4:]) &^ (natsserver.ErasedBit | natsserver.TombstoneBit)
		if seq <= after || seq > after+reach {
			continue // cheap, and true of nearly every place
		}
		if _, ok := b.frame(at, sum); ok {
			return at
		}
	}
	return len(b.Bytes)
}

// Shaped counts the frames of a block by their lengths alone, with any checksums, up to
// the first place without one.
func (b *Block) Shaped() (frames int) {
	last := uint64(0)
	for at := 0; at < len(b.Bytes); frames++ {
		f, ok := b.shape(at)
		if !ok || f.Seq <= last && f.Kind == Message {
			break
		}
		last = max(last, f.Seq)
		at += f.Size
	}
	return frames
}

// frame reads the frame at a place, if it is whole and its checksum is good.
func (b *Block) frame(at int, sum hash.Hash64) (Frame, bool) {
	f, ok := b.shape(at)
	if !ok {
		return Frame{}, false
	}
	raw := b.Bytes[at : at+f.Size]
	sum.Reset()
	_, _ = sum.Write(raw[4:20])
	_, _ = sum.Write(raw[natsserver.FrameHeader : natsserver.FrameHeader+len(f.Subject)])
	_, _ = sum.Write(f.Header)
	_, _ = sum.Write(f.Data)
	return f, sum.Sum64() == binary.LittleEndian.Uint64(raw[f.Size-natsserver.FrameChecksum:])
}

// shape reads the frame at a place, if its lengths fit.
func (b *Block) shape(at int) (Frame, bool) {
	rest := b.Bytes[at:]
	if len(rest) < natsserver.FrameMin {
		return Frame{}, false
	}
	length := binary.LittleEndian.Uint32(rest)
	size := int(length &^ natsserver.HeadersBit)
	if size < natsserver.FrameMin || size > len(rest) || size > natsserver.FrameMax {
		return Frame{}, false
	}
	seq, nano := binary.LittleEndian.Uint64(rest[4:]), int64(binary.LittleEndian.Uint64(rest[12:]))
	data := rest[natsserver.FrameHeader : size-natsserver.FrameChecksum]
	subject := int(binary.LittleEndian.Uint16(rest[20:]))
	if subject > len(data) {
		return Frame{}, false
	}
	f := Frame{Offset: at, Size: size, Seq: seq &^ (natsserver.ErasedBit | natsserver.TombstoneBit), Time: time.Unix(0, nano).UTC(), Subject: string(data[:subject])}
	f.Data = data[subject:]
	if length&natsserver.HeadersBit != 0 {
		if len(f.Data) < 4 {
			return Frame{}, false
		}
		n := binary.LittleEndian.Uint32(f.Data)
		if uint64(n) > uint64(len(f.Data)-4) {
			return Frame{}, false
		}
		f.Header, f.Data = f.Data[4:4+n], f.Data[4+n:]
	}
	switch {
	case seq&natsserver.TombstoneBit != 0:
		f.Kind = Tombstone
	case seq&natsserver.ErasedBit != 0 || seq == 0:
		f.Kind = Erased
	}
	return f, true
}

// TombstoneFrame is a frame to tell the server that sequences up to seq were used. The
// server writes the same when its own state runs ahead of its blocks.
func (b *Block) TombstoneFrame(seq uint64, at time.Time) []byte {
	out := make([]byte, natsserver.FrameMin)
	binary.LittleEndian.PutUint32(out, natsserver.FrameMin)
	binary.LittleEndian.PutUint64(out[4:], seq|natsserver.TombstoneBit)
	binary.LittleEndian.PutUint64(out[12:], uint64(at.UnixNano()))
	b.sign(out)
	return out
}

// sign sets the checksum of a frame without headers.
func (b *Block) sign(frame []byte) {
	sum := b.hash()
	_, _ = sum.Write(frame[4:20])
	_, _ = sum.Write(frame[natsserver.FrameHeader : len(frame)-natsserver.FrameChecksum])
	binary.LittleEndian.PutUint64(frame[len(frame)-natsserver.FrameChecksum:], sum.Sum64())
}
