package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// maxSalvage bounds what one process keeps of damaged messages. What does not fit is named
// without being kept.
const maxSalvage = 1 << 30

// keep copies a damaged message to the salvage folder, and returns the file's path, or "" where
// that fails: the damage is named all the same. A message is kept once, however often it is
// read. A crash leaves the whole file, or none, and the next reading makes it again.
func (s *Store) keep(stream string, m *message) string {
	path := filepath.Join(s.cfg.Salvage, fmt.Sprintf("%s-%d.bin", stream, m.Seq))
	if s.cfg.Salvage == "" || s.salvaged.Load() > maxSalvage {
		return ""
	}
	if info, err := os.Stat(path); err == nil && info.Size() == int64(len(m.Data)) {
		return path
	}
	err := durable.MakeDir(s.cfg.Salvage)
	if err == nil {
		err = durable.WriteFile(path, m.Data)
	}
	if err != nil {
		s.log.Warn("keeping a damaged message failed; the damage itself is named", "stream", stream, "sequence", m.Seq, "error", err)
		return ""
	}
	s.salvaged.Add(int64(len(m.Data)))
	return path
}
