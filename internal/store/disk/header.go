package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store"
)

const (
	headerSize    = 512
	pageSize      = 4096
	dataStart     = 2 * pageSize
	formatVersion = 1
)

var segmentMagic = [8]byte([]byte("arsegmnt"))

// A segment begins with two copies of its header, each on a page of its own, so that
// neither one bad page nor two exchanged ones cost it. The records follow.
//
// segmentHeader is the header as it stands there, in little-endian numbers. The first twelve
// bytes and the checksum stand like this in every version. So a later version is told from rot.
type segmentHeader struct {
	Magic     [8]byte // segmentMagic
	Version   uint32
	_         uint32
	Log       [16]byte  // the random name of the log
	Base      store.Pos // the position of the first record
	Before    store.Pos // the base of the segment before; 0 for the first
	BeforeEnd int64     // the offset at which that one ends
	Made      int64     // in nanoseconds since 1970
	Secret    [16]byte  // of the log
	Writer    [64]byte  // the version of the program, in text
	// Doubtful is from which position on nobody knows what the segment before was to hold, or, in
	// the first segment, what was lost with the log's folder.
	Doubtful store.Pos
	Name     [64]byte // of the log
	_        [headerSize - 224]byte
	Sum      uint64 // of the bytes before it
}

func (s *Store) newHeader(log string) (h segmentHeader) {
	h.Magic, h.Version = segmentMagic, formatVersion
	copy(h.Writer[:], s.cfg.Writer)
	copy(h.Name[:], log)
	return h
}

// VersionError says that a file was written by a later version of the program.
type VersionError struct {
	File, Writer string
	Version      uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has version %d of its format, which this program does not know: it was written by %s; run that version, or restore a backup from before the upgrade",
		e.File, e.Version, e.Writer)
}

// encode makes both copies, and what is blank after them.
func (h *segmentHeader) encode() []byte {
	b := make([]byte, dataStart)
	p := b[:headerSize]
	_, _ = binary.Encode(p, binary.LittleEndian, h) // whose size is known
	binary.LittleEndian.PutUint64(p[headerSize-8:], sum(0, p[:headerSize-8]))
	copy(b[pageSize:], p)
	return b
}

// readHeader reads whichever copy is whole. It returns nil where none is, and a
// VersionError where a later version wrote the file. bad is the offset of a copy that is not
// like the one that was returned, or -1.
func readHeader(f file, path string) (h *segmentHeader, bad int64, err error) {
	var copies [2][]byte
	for i := range copies {
		p := make([]byte, headerSize)
		_, _ = f.ReadAt(p, int64(i)*pageSize) // a bad sector costs this copy only
		if [8]byte(p) == segmentMagic && binary.LittleEndian.Uint64(p[headerSize-8:]) == sum(0, p[:headerSize-8]) {
			copies[i] = p
		}
	}
	p, bad := copies[0], int64(-1)
	switch {
	case p == nil && copies[1] == nil:
		return nil, -1, nil
	case p == nil:
		p, bad = copies[1], 0
	case !bytes.Equal(p, copies[1]):
		bad = pageSize
	}
	h = &segmentHeader{}
	_, _ = binary.Decode(p, binary.LittleEndian, h) // whose size is known
	if h.Version != formatVersion {
		return nil, -1, &VersionError{File: path, Writer: strings.TrimRight(string(h.Writer[:]), "\x00"), Version: h.Version}
	}
	return h, bad, nil
}

// header reads the header of a file, and mends a damaged copy from the other one. A crash in
// it leaves a copy that the next start mends.
func (s *Store) header(f file, path string) (*segmentHeader, error) {
	h, bad, err := readHeader(f, path)
	if err != nil || bad < 0 || s.view {
		return h, err
	}
	_, err = f.WriteAt(h.encode()[:headerSize], bad)
	s.log.Warn("a copy of a file's header was damaged, and was written again from the other copy", "file", path, "offset", bad, "error", err)
	return h, nil
}

// of reports whether the header was written for the log of a name.
func (h *segmentHeader) of(name string) bool {
	var want [len(h.Name)]byte
	copy(want[:], name)
	return h.Name == want
}

// seedOf is the seed of a segment's checksums. Records that stand in another segment, or
// in one of another log, are none there.
func seedOf(secret, log [16]byte, base store.Pos) uint64 {
	b := append(append(secret[:len(secret):len(secret)], log[:]...), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.LittleEndian.PutUint64(b[32:], uint64(base))
	digest := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(digest[:])
}

const segmentSuffix = ".seg"

func segmentName(base store.Pos) string { return fmt.Sprintf("%020d%s", base, segmentSuffix) }

// baseOf is the base that a file's name says.
func baseOf(name string) (base store.Pos, ok bool) {
	digits, isSegment := strings.CutSuffix(name, segmentSuffix)
	if !isSegment || len(digits) != 20 {
		return 0, false
	}
	n, err := fmt.Sscanf(digits, "%020d", &base)
	return base, n == 1 && err == nil && segmentName(base) == name
}
