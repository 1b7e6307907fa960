package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// salvageName is the place of a whole file, or folder, of a stream. fileSalvageOf reads
// it back.
func salvageName(stream, what string) string {
	return filepath.Join(SalvageDir, fmt.Sprintf("%s-%s-%d.file", stream, what, time.Now().UnixNano()))
}

// setAside moves a file the disk cannot give to the salvage folder. After a crash the file
// is missing at its old place: the next start names what it held.
func (d *Dir) setAside(path, kept string) error {
	to := filepath.Join(d.path, kept)
	if err := durable.MakeDir(filepath.Dir(to)); err != nil {
		return fmt.Errorf("make salvage folder: %w", err)
	}
	if err := os.Rename(path, to); err != nil {
		return fmt.Errorf("move an unreadable file aside: %w", err)
	}
	return errors.Join(durable.SyncDir(filepath.Dir(to)), durable.SyncDir(filepath.Dir(path)))
}

// keepHoled keeps a block with bad sectors under a second name: a better reader may get more
// out of it. It stays in its place until the sound records replace it. File systems without
// second names keep the damaged stretches only.
func (d *Dir) keepHoled(path, kept string) error {
	if blockfile.Regular(path) != nil {
		return d.setAside(path, kept)
	}
	if err := durable.MakeDir(filepath.Join(d.path, SalvageDir)); err != nil {
		return fmt.Errorf("make salvage folder: %w", err)
	}
	if linked := os.Link(path, filepath.Join(d.path, kept)) == nil; !linked {
		return nil
	}
	return durable.SyncDir(filepath.Join(d.path, SalvageDir))
}

// stretchName is the place of a stretch of a block. stretchOf reads it back.
func stretchName(m *Mending, block uint32) string {
	return filepath.Join(SalvageDir, fmt.Sprintf("%s-%d-%d-%d-%d.bin", m.Stream, m.From, m.To, block, m.Offset))
}

// Salvaged lists the stretches and files taken from the server, except those surely never
// acknowledged. Kept is the place of the bytes.
func Salvaged(path string) ([]Quarantined, error) {
	entries, err := os.ReadDir(filepath.Join(path, SalvageDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the salvage folder: %w", err)
	}
	var all []Quarantined
	for _, e := range entries {
		q, ok := stretchOf(e.Name())
		if !ok {
			q, ok = fileSalvageOf(e.Name())
		}
		if ok && q.To >= q.From {
			all = append(all, q)
		}
	}
	return all, nil
}

// Keep writes an undecodable record to the salvage folder, and returns its place there.
func Keep(path, stream string, seq uint64, record []byte) (kept string, err error) {
	kept = filepath.Join(SalvageDir, fmt.Sprintf("record-%s-%d.raw", stream, seq))
	return kept, keepFile(filepath.Join(path, kept), record)
}

// fileSalvageOf reads a name made by salvageName.
func fileSalvageOf(base string) (Quarantined, bool) {
	name, ok := strings.CutSuffix(base, ".file")
	parts := strings.Split(name, "-")
	if !ok || len(parts) < 3 {
		return Quarantined{}, false
	}
	n := len(parts) - 2
	return Quarantined{
		Stream: strings.Join(parts[:n], "-"), Kept: filepath.Join(SalvageDir, base),
		Reason: "the file of its " + parts[n] + " was damaged, and was replaced",
	}, true
}

// stretchOf reads a name made by stretchName.
func stretchOf(base string) (Quarantined, bool) {
	name, ok := strings.CutSuffix(base, ".bin")
	parts := strings.Split(name, "-")
	if !ok || len(parts) < 5 {
		return Quarantined{}, false
	}
	n := len(parts) - 4
	q := Quarantined{Stream: strings.Join(parts[:n], "-"), Kept: filepath.Join(SalvageDir, base)}
	var block, offset uint64
	_, err := fmt.Sscanf(strings.Join(parts[n:], " "), "%d %d %d %d", &q.From, &q.To, &block, &offset)
	q.Reason = fmt.Sprintf("damaged on disk, in block %d at offset %d", block, offset)
	return q, err == nil
}
