package blockfile

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Index is the server's note on a stream from its last stop or pause.
type Index struct {
	First, Last uint64 // sequences
	// Trusted means the server will go by it, and not read the blocks.
	Trusted bool
	// Damaged means the file exists, and cannot be read or has a wrong checksum. The rest
	// is zero then.
	Damaged bool
}

// ReadIndex reads a stream's index.db. Without a file it returns the zero Index. A good
// checksum with another version is an ErrForm.
func ReadIndex(stream, streamDir string) (Index, error) {
	data, err := ReadFile(filepath.Join(streamDir, natsserver.MessagesDir, natsserver.IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Index{}, nil
	}
	if errors.Is(err, ErrUnreadable) {
		return Index{Damaged: true}, nil
	}
	if err != nil {
		return Index{}, fmt.Errorf("read index: %w", err)
	}
	key := natsserver.Key(stream)
	if len(data) < 32 || highwayhash.Sum64(data[:len(data)-8], key[:]) != binary.LittleEndian.Uint64(data[len(data)-8:]) {
		return Index{Damaged: true}, nil
	}
	if data[0] != natsserver.IndexMagic || data[1] < natsserver.IndexVersionLeast || data[1] > natsserver.IndexVersion {
		return Index{}, fmt.Errorf("%w: the index of %s has magic %d and version %d", ErrForm, stream, data[0], data[1])
	}
	r := reader{data[2 : len(data)-8]}
	r.uvarint() // messages
	r.uvarint() // bytes
	x := Index{First: r.uvarint()}
	r.uvarint() // first time
	x.Last = r.uvarint()
	if r.rest == nil {
		return Index{Damaged: true}, nil
	}
	x.Trusted, err = endsWith(streamDir, data[len(data)-16:len(data)-8])
	return x, err
}

// endsWith reports whether the newest block's last checksum is the given one.
func endsWith(streamDir string, checksum []byte) (bool, error) {
	paths, err := List(streamDir)
	if err != nil || len(paths) == 0 {
		return false, err
	}
	last, err := LastChecksum(paths[len(paths)-1])
	if errors.Is(err, ErrUnreadable) {
		return false, nil
	}
	return string(last[:]) == string(checksum), err
}

// LastChecksum is the checksum of a block's last frame, zero for an empty block.
func LastChecksum(path string) (last [natsserver.FrameChecksum]byte, err error) {
	if err := Regular(path); err != nil {
		return last, fmt.Errorf("open newest block: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return last, fmt.Errorf("open newest block: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return last, fmt.Errorf("open newest block: %w", err)
	}
	if info.Size() >= natsserver.FrameChecksum {
		if _, err := f.ReadAt(last[:], info.Size()-natsserver.FrameChecksum); err != nil {
			return last, fmt.Errorf("read newest block: %w", Unreadable(err))
		}
	}
	return last, nil
}

// Position is a consumer's, by the server's last write.
type Position struct{ Acknowledged, Delivered uint64 }

// ErrPosition marks an unreadable consumer state. The server keeps no checksum of it, so
// damage often looks like another position instead.
var ErrPosition = errors.New("consumer state is damaged")

// ReadPosition reads a consumer's o.dat. Without a file it returns the zero Position. A
// later version is an ErrForm, unless all else is as in ours: then a bit of the version
// byte is flipped. Another magic byte counts as damage, as nothing tells the two apart.
func ReadPosition(streamDir, consumer string) (Position, error) {
	data, err := ReadFile(filepath.Join(streamDir, natsserver.ConsumersDir, consumer, natsserver.PositionFile))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return Position{}, nil
	}
	if errors.Is(err, ErrUnreadable) {
		return Position{}, fmt.Errorf("%w: %w", ErrPosition, err)
	}
	if err != nil {
		return Position{}, fmt.Errorf("read consumer state: %w", err)
	}
	if len(data) < 2 || data[0] != natsserver.PositionMagic || data[1] != natsserver.PositionVersion {
		later := len(data) >= 2 && data[0] == natsserver.PositionMagic && data[1] > natsserver.PositionVersion
		if _, rest, err := decodePosition(data[min(2, len(data)):]); later && (err != nil || rest > 0) {
			return Position{}, fmt.Errorf("%w: the state of consumer %s has version %d", ErrForm, consumer, data[1])
		}
		return Position{}, fmt.Errorf("%w: its header is unknown", ErrPosition)
	}
	p, _, err := decodePosition(data[2:])
	return p, err
}

// decodePosition reads the state behind the header, and counts the bytes left.
func decodePosition(data []byte) (p Position, left int, err error) {
	r := reader{data}
	acknowledged := r.uvarint() // counted in deliveries
	p.Acknowledged = r.uvarint()
	deliveries := r.uvarint()
	p.Delivered = r.uvarint()
	pending := r.uvarint()
	if r.rest == nil || p.Delivered>>63 != 0 || p.Acknowledged > p.Delivered || acknowledged > deliveries || pending > p.Delivered-p.Acknowledged {
		return Position{}, 0, fmt.Errorf("%w: its numbers contradict each other", ErrPosition)
	}
	// The unacknowledged messages, with a time each: the server makes room for the number
	// written here, and refuses the consumer if they do not follow.
	if pending > 0 {
		r.uvarint()
	}
	for ; pending > 0 && r.rest != nil; pending-- {
		r.uvarint() // the record
		r.uvarint() // its delivery
		r.uvarint() // its time
	}
	if r.rest == nil {
		return Position{}, 0, fmt.Errorf("%w: its end is missing", ErrPosition)
	}
	again := r.uvarint()
	if again > uint64(len(r.rest)) {
		return Position{}, 0, fmt.Errorf("%w: it holds less than it says", ErrPosition)
	}
	for range 2 * again {
		r.uvarint() // a record, and the number of its deliveries
	}
	return p, len(r.rest), nil
}

// Consumers lists the consumers of a stream.
func Consumers(streamDir string) ([]string, error) {
	entries, err := readDir(filepath.Join(streamDir, natsserver.ConsumersDir))
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// reader reads varints; rest is nil once they run out.
type reader struct{ rest []byte }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.rest = nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Described reports whether the description (meta.inf) of a stream or a consumer in dir
// fits its checksum (meta.sum). The key is the stream's name. For a consumer it is the
// stream's, a slash, and the consumer's.
func Described(key, dir string) (bool, error) {
	text, err := ReadFile(filepath.Join(dir, natsserver.Description))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	sum, missing := ReadFile(filepath.Join(dir, natsserver.DescriptionSum))
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		err = errors.Join(err, missing)
	}
	if errors.Is(err, ErrUnreadable) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read description: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, natsserver.DescriptionKey)); err == nil {
		return false, fmt.Errorf("%w: the description in %s is encrypted", ErrForm, dir)
	}
	return string(DescriptionSum(key, text)) == string(sum), nil
}

// DescriptionSum is the content of the meta.sum of a description: see Described.
func DescriptionSum(key string, text []byte) []byte {
	hashKey := natsserver.Key(key)
	sum := binary.LittleEndian.AppendUint64(nil, highwayhash.Sum64(text, hashKey[:]))
	return hex.AppendEncode(nil, sum)
}

// AppendOnly reports whether the stream's description denies deletes and purges, and
// returns its first sequence. In such a stream, a sequence without a message was lost.
func AppendOnly(streamDir string) (first uint64, yes bool) {
	text, err := os.ReadFile(filepath.Join(streamDir, natsserver.Description))
	var c struct {
		FirstSeq   uint64 `json:"first_seq"`
		DenyDelete bool   `json:"deny_delete"`
		DenyPurge  bool   `json:"deny_purge"`
	}
	yes = err == nil && json.Unmarshal(text, &c) == nil && c.DenyDelete && c.DenyPurge
	return max(c.FirstSeq, 1), yes
}
