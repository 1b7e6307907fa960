package disk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store"
)

// endMark says up to where a log is durable. It is written after each sync and before the
// acknowledgement, and itself synced only now and then: a kill of the process loses
// nothing of it, since the kernel holds what was written.
// This is its form on disk, in little-endian numbers.
type endMark struct {
	Log, Secret [16]byte
	// Boot names the time between two starts of the machine. Under another one the mark is
	// a lower bound.
	Boot   [16]byte
	End    store.Pos // the newest durable record
	Base   store.Pos // its segment
	Offset int64     // where its segment goes on
	Newest int64     // the time of that record, in nanoseconds since 1970
	First  store.Pos // the oldest position kept
	Table  uint64    // the generation of the store's durable values, which are never older
}

// endSuffix follows the name of a log in that of its end mark. The file stands next to the log's folder,
// so that a folder that was lost, or exchanged with another one, leaves it: the log goes on under the
// same id after the positions that it had, and its readers are told that those are lost.
const endSuffix = ".end"

func (s *Store) endPath(log string) string { return filepath.Join(s.cfg.Dir, log+endSuffix) }

// lostMargin is how many positions after a mark are passed over when files are lost, and the mark is
// no more than a lower bound. It is synced every second.
const lostMargin = 1 << 16

// endPurpose tells the end mark of a log from those of others.
func endPurpose(log string) string { return "end of " + log }

// append appends the mark to b. Each group of records has one, so that it does without reflection.
func (m *endMark) append(b []byte) []byte {
	b = append(append(append(b, m.Log[:]...), m.Secret[:]...), m.Boot[:]...)
	for _, n := range [...]uint64{uint64(m.End), uint64(m.Base), uint64(m.Offset), uint64(m.Newest), uint64(m.First), m.Table} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// parseMark returns nil where there is none.
func parseMark(b []byte) *endMark {
	m := &endMark{}
	if n, err := binary.Decode(b, binary.LittleEndian, m); err != nil || n != len(b) {
		return nil
	}
	return m
}

// endMark is the end mark of a log as it is now; nil where it cannot be read. Another process may write
// it meanwhile.
func (s *Store) endMark(log string) *endMark {
	f, err := s.fs.Open(s.endPath(log), toRead)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	mark := &slots{seed: seedFor(endPurpose(log)), f: f}
	mark.loadShared()
	return parseMark(mark.value())
}

// bootID is the kernel's name for the time since the machine was started, or zeros where
// it gives none, which equal nothing.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	copy(id[:], strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	return id
}
