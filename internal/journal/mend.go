package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/blockfile"
)

// store is where the embedded server keeps the streams.
type store struct {
	dataDir string
	names   names
	marks   *marks
}

func (s *store) streamDir(stream string) string {
	return filepath.Join(s.dataDir, "jetstream", "jetstream", "$G", "streams", stream)
}

// own names the journal's streams. Without them no event can be kept.
func (s *store) own() []string {
	return []string{s.names.events, s.names.dead, s.names.quarantine}
}

// streams names the journal's streams, and then whatever else the data directory
// holds: the trail, its checkpoints, the credentials, and streams of tomorrow.
func (s *store) streams() ([]string, error) {
	entries, err := os.ReadDir(s.streamDir(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	all := s.own()
	for _, e := range entries {
		// The server removes what begins with a dot: a stream that it was deleting.
		if name := e.Name(); e.IsDir() && !strings.HasPrefix(name, ".") && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// SalvageDir is the folder under the data directory where damaged bytes are kept.
const SalvageDir = "salvage"

// Mending is a piece of a file that was set right before the server read it.
type Mending struct {
	Stream string `json:"stream"`
	// File is relative to the data directory, Offset and Bytes lie in it.
	File   string `json:"file"`
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"`
	// From and To are the records that the piece held, as far as can be told;
	// To is less than From where it held none that was acknowledged.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// Problem says what was wrong, Kept where the bytes were copied to before.
	Problem string `json:"problem"`
	Kept    string `json:"kept,omitempty"`
}

// mend looks through the files of every stream before the server opens them, and
// sets right what the server would answer with the loss of more than is damaged:
//
//   - Damage in a block: the server cuts the block off there, good records
//     behind it and all. Only the damaged stretch is taken out; the server then
//     sees positions without a record, which [Journal] reports.
//   - A torn end: the server would give the lost records' positions to new ones,
//     and sinks that have acknowledged those positions would never get them. A
//     tombstone behind the end keeps them from being used again.
//   - A consumer's state that cannot be decoded: no consumer of that name could
//     be made again.
//   - Files of a stream that cannot be read at all, where the stream holds no
//     events: its folder is moved to the salvage folder, and the stream begins anew.
//
// What is taken out is in the salvage folder first. A crash on any line leaves
// each file as it was or as it shall be, and the next start goes on.
func (s *store) mend(log *slog.Logger) ([]Mending, error) {
	start := time.Now()
	names, err := s.streams()
	if err != nil {
		return nil, err
	}
	var all []Mending
	for _, stream := range names {
		done, err := s.prepare(stream)
		all = append(all, done...)
		if err != nil {
			return all, fmt.Errorf("check the files of stream %s: %w", stream, err)
		}
	}
	for _, m := range all {
		log.Error("a damaged file of the journal was mended", "file", m.File, "offset", m.Offset, "bytes", m.Bytes,
			"first_position", m.From, "last_position", m.To, "problem", m.Problem, "kept", m.Kept)
	}
	log.Info("the journal's files were checked", "streams", len(names), "seconds", time.Since(start).Seconds())
	return all, nil
}

// prepare syncs and mends one stream.
func (s *store) prepare(stream string) ([]Mending, error) {
	if !slices.Contains(s.own(), stream) {
		if _, unreadable := s.mendStream(stream, true); unreadable != nil {
			moved, err := s.moveAside(stream, unreadable)
			return []Mending{moved}, err
		}
	}
	// First, as mending may put a block behind the newest.
	if err := renewNewestBlock(s.streamDir(stream)); err != nil {
		return nil, err
	}
	return s.mendStream(stream, false)
}

// moveAside takes a stream away whose files cannot be read. Its rooms make it
// again, and say what is missing.
func (s *store) moveAside(stream string, cause error) (Mending, error) {
	m := Mending{
		Stream: stream, File: s.relative(s.streamDir(stream)), From: 1,
		Problem: fmt.Sprintf("the stream cannot be read: %v; its folder was moved, and the stream begins anew", cause),
		Kept:    salvageName(stream, "folder"),
	}
	to := filepath.Join(s.dataDir, m.Kept)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return m, fmt.Errorf("make salvage folder: %w", err)
	}
	if err := os.Rename(s.streamDir(stream), to); err != nil {
		return m, fmt.Errorf("move an unreadable stream aside: %w", errors.Join(err, cause))
	}
	return m, errors.Join(syncDir(filepath.Dir(to)), syncDir(s.streamDir("")))
}

// mendStream mends one stream, or where dry is set only says what it would do.
func (s *store) mendStream(stream string, dry bool) ([]Mending, error) {
	dir := s.streamDir(stream)
	described, err := s.mendDescriptions(stream, dry)
	if err != nil {
		return nil, err
	}
	index, err := blockfile.ReadIndex(stream, dir)
	if err != nil {
		return nil, err
	}
	files := described
	if index.Damaged {
		m, err := s.takeFile(stream, filepath.Join(dir, "msgs", "index.db"), "index", dry)
		if err != nil {
			return files, err
		}
		m.Problem = "the index is damaged; the server makes it again"
		files = append(files, m)
	}
	later := versions{since: index.First}
	survey, err := s.survey(stream, later.look)
	if err == nil && (stream == s.names.events || stream == s.names.dead) { // the others hold bytes of any kind
		err = later.err()
	}
	if err != nil {
		return nil, err
	}
	last := s.lastKnown(stream, index, survey)
	all := survey.damage(last)
	if !dry {
		for i := range all {
			if err := s.takeOut(survey, &all[i]); err != nil {
				return all, err
			}
		}
	}
	if end := survey.end(index); last > end {
		all = append(all, Mending{
			Stream: stream, File: s.relative(dir), From: end + 1, To: last,
			Problem: "the newest records are gone from the end of the stream",
		})
		if !dry {
			if err := s.moveEnd(stream, dir, last); err != nil {
				return all, err
			}
		}
	}
	positions, err := s.mendPositions(stream, dry)
	return slices.Concat(files, all, positions), err
}

// lastKnown is the newest sequence that there must be.
func (s *store) lastKnown(stream string, index blockfile.Index, v *survey) uint64 {
	if stream != s.names.events {
		return max(index.Last, s.marks.end(stream))
	}
	last := max(index.Last, s.marks.newest())
	if _, known := s.marks.read(markAcknowledged); !known && v.torn {
		last = max(last, v.last+1) // a mark got lost, too: what is torn may have been acknowledged
	}
	return last
}

func (s *store) relative(path string) string {
	if r, err := filepath.Rel(s.dataDir, path); err == nil {
		return r
	}
	return path
}

// takeOut rewrites a block without a damaged stretch. All stretches of a block
// are named before the first is taken out, with offsets into the file as it was.
func (s *store) takeOut(v *survey, m *Mending) error {
	b := v.damaged[m.File]
	if b == nil {
		return nil
	}
	kept := filepath.Join(SalvageDir, fmt.Sprintf("%s-%d-%d-%d-%d.bin", m.Stream, m.From, m.To, b.Index, m.Offset))
	if err := writeDurably(filepath.Join(s.dataDir, kept), b.Bytes[m.Offset:m.Offset+m.Bytes]); err != nil {
		return err
	}
	m.Kept = kept
	if m.Offset != b.lastDamage {
		return nil // the rewrite takes out all of them, once all are kept
	}
	return writeDurably(b.Path, b.sound)
}

// moveEnd writes a block that holds nothing but a tombstone, as the server does
// when its own state remembers a later end than its blocks.
func (s *store) moveEnd(stream, dir string, last uint64) error {
	paths, err := blockfile.List(dir)
	if err != nil {
		return err
	}
	index := uint32(1)
	if n := len(paths); n > 0 {
		newest, err := blockfile.IndexOf(paths[n-1])
		if err != nil {
			return err
		}
		index = newest + 1
	}
	path := filepath.Join(dir, "msgs", fmt.Sprintf("%d.blk", index))
	b := blockfile.New(stream, path, index, nil)
	return writeDurably(path, b.TombstoneFrame(last, time.Now()))
}

// mendPositions takes away consumer states that cannot be decoded.
func (s *store) mendPositions(stream string, dry bool) ([]Mending, error) {
	dir := s.streamDir(stream)
	consumers, err := blockfile.Consumers(dir)
	if err != nil {
		return nil, err
	}
	var all []Mending
	for _, name := range consumers {
		_, damaged := blockfile.ReadPosition(dir, name)
		if !errors.Is(damaged, blockfile.ErrPosition) {
			continue
		}
		m, err := s.takeFile(stream, filepath.Join(dir, "obs", name, "o.dat"), "position", dry)
		if err != nil {
			return all, err
		}
		m.Problem = fmt.Sprintf("%v; it is read from the start again", damaged)
		all = append(all, m)
	}
	return all, nil
}

// takeFile moves a damaged file of the server's to the salvage folder. A crash
// behind the copy has it copied once more.
func (s *store) takeFile(stream, path, what string, dry bool) (Mending, error) {
	m := Mending{Stream: stream, File: s.relative(path), From: 1}
	if dry {
		return m, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("keep damaged %s: %w", what, err)
	}
	m.Bytes, m.Kept = len(data), salvageName(stream, what)
	if err := writeDurably(filepath.Join(s.dataDir, m.Kept), data); err != nil {
		return m, err
	}
	if err := os.Remove(path); err != nil {
		return m, fmt.Errorf("take away damaged %s: %w", what, err)
	}
	return m, nil
}

// salvageName is the place of a whole file, or folder, of a stream. From it
// [fileSalvageOf] reads what it was.
func salvageName(stream, what string) string {
	return filepath.Join(SalvageDir, fmt.Sprintf("%s-%s-%d.file", stream, what, time.Now().UnixNano()))
}

// writeDurably writes a file so that after a crash it is there whole, or as it
// was before.
func writeDurably(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	f, err := os.CreateTemp(dir, strings.TrimSuffix(filepath.Base(path), ".blk")+".*.mending")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // a leftover would do no harm
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
