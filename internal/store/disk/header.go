package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A segment begins with two copies of its header, each on a page of its own, so that
// neither one bad page nor two exchanged ones cost it. The records follow.
//
//	  0  "arsegmnt"
//	  8  version     4
//	 12  zero        4
//	 16  log         16, the random name of the log
//	 32  base        8, the position of the first record
//	 40  before      8, the base of the segment before; 0 for the first
//	 48  before end  8, the offset at which that one ends
//	 56  made        8, in nanoseconds since 1970
//	 64  secret      16, of the log
//	 80  writer      64, the version of the program, in text
//	144  doubtful    8, from which position on nobody knows what the segment before was to hold,
//	                 or, in the first segment, what was lost with the log's folder
//	152  name       64, of the log
//	504  checksum    8, of the bytes before it
//
// The first twelve bytes and the checksum stand like this in every version. So a later
// version is told from rot.
const (
	headerSize    = 512
	pageSize      = 4096
	dataStart     = 2 * pageSize
	formatVersion = 1
	maxName       = 64
)

var segmentMagic = []byte("arsegmnt")

// segmentHeader is what stands at the beginning of a segment.
type segmentHeader struct {
	log       [16]byte
	base      store.Pos
	before    store.Pos
	beforeEnd int64
	made      time.Time
	secret    [16]byte
	writer    string
	doubtful  store.Pos
	name      string
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

func (h *segmentHeader) encode() []byte {
	b := make([]byte, dataStart)
	p := b[:headerSize]
	copy(p, segmentMagic)
	binary.LittleEndian.PutUint32(p[8:], formatVersion)
	copy(p[16:], h.log[:])
	binary.LittleEndian.PutUint64(p[32:], uint64(h.base))
	binary.LittleEndian.PutUint64(p[40:], uint64(h.before))
	binary.LittleEndian.PutUint64(p[48:], uint64(h.beforeEnd))
	binary.LittleEndian.PutUint64(p[56:], uint64(h.made.UnixNano()))
	copy(p[64:], h.secret[:])
	copy(p[80:144], h.writer)
	binary.LittleEndian.PutUint64(p[144:], uint64(h.doubtful))
	copy(p[152:152+maxName], h.name)
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
		if bytes.Equal(p[:8], segmentMagic) && binary.LittleEndian.Uint64(p[headerSize-8:]) == sum(0, p[:headerSize-8]) {
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
	h = parseHeader(p)
	if v := binary.LittleEndian.Uint32(p[8:]); v != formatVersion {
		return nil, -1, &VersionError{File: path, Writer: h.writer, Version: v}
	}
	return h, bad, nil
}

func parseHeader(p []byte) *segmentHeader {
	h := &segmentHeader{
		base:      store.Pos(binary.LittleEndian.Uint64(p[32:])),
		before:    store.Pos(binary.LittleEndian.Uint64(p[40:])),
		beforeEnd: int64(binary.LittleEndian.Uint64(p[48:])),
		made:      time.Unix(0, int64(binary.LittleEndian.Uint64(p[56:]))),
		writer:    strings.TrimRight(string(p[80:144]), "\x00"),
		doubtful:  store.Pos(binary.LittleEndian.Uint64(p[144:])),
		name:      strings.TrimRight(string(p[152:152+maxName]), "\x00"),
	}
	copy(h.log[:], p[16:])
	copy(h.secret[:], p[64:])
	return h
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
func (h *segmentHeader) of(name string) bool { return h.name == name[:min(len(name), maxName)] }

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
