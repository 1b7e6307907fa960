package disk

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/store"
)

// endMark says up to where a log is durable. It is written after each sync and before the
// acknowledgement, and itself synced only now and then: a kill of the process loses
// nothing of it, since the kernel holds what was written.
type endMark struct {
	log, secret [16]byte
	// boot names the time between two starts of the machine. Under another one the mark is
	// a lower bound.
	boot   [16]byte
	end    store.Pos // the newest durable record
	base   store.Pos // its segment
	offset int64     // where its segment goes on
	newest time.Time // of that record
	first  store.Pos // the oldest position kept
	table  uint64    // the generation of the store's durable values, which are never older
}

const markLength = 96

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

func (m *endMark) encode(b []byte) []byte {
	b = append(b, m.log[:]...)
	b = append(b, m.secret[:]...)
	b = append(b, m.boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.end))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.base))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.offset))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.newest.UnixNano()))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.first))
	return binary.LittleEndian.AppendUint64(b, m.table)
}

// parseMark returns nil where there is none.
func parseMark(b []byte) *endMark {
	if len(b) != markLength {
		return nil
	}
	m := &endMark{
		end:    store.Pos(binary.LittleEndian.Uint64(b[48:])),
		base:   store.Pos(binary.LittleEndian.Uint64(b[56:])),
		offset: int64(binary.LittleEndian.Uint64(b[64:])),
		newest: time.Unix(0, int64(binary.LittleEndian.Uint64(b[72:]))),
		first:  store.Pos(binary.LittleEndian.Uint64(b[80:])),
		table:  binary.LittleEndian.Uint64(b[88:]),
	}
	copy(m.log[:], b)
	copy(m.secret[:], b[16:])
	copy(m.boot[:], b[32:])
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
