package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// Mending is a piece of a file, mended before the server read it.
type Mending struct {
	Stream string `json:"stream"`
	// File is relative to the data directory. Offset and Bytes lie in it.
	File   string `json:"file"`
	Offset int    `json:"offset"`
	Bytes  int    `json:"bytes"`
	// From and To are the records of the piece, as far as known. To is less than From if
	// none of them was acknowledged.
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
	// Problem describes the damage. Kept is the place of the bytes, copied before the
	// change.
	Problem string `json:"problem"`
	Kept    string `json:"kept,omitempty"`
}

// mend looks through the files of every stream before the server opens them. It mends
// damage the server would turn into a greater loss:
//
//   - Damage in a block: the server cuts the block off there, good records
//     behind it and all. Only the damaged stretch is taken out; the server then
//     sees positions without a record, and the journal reports them.
//   - A torn end: the server would give the lost records' positions to new ones,
//     and sinks beyond those positions would never get them. A tombstone behind
//     the end keeps them from being used again.
//   - An undecodable state of a consumer: no consumer of its name could be made again.
//   - Unreadable files of a stream without events: its folder is moved to the salvage
//     folder, and the stream begins anew.
//
// Removed bytes are in the salvage folder first. A crash on any line leaves each file as
// it was or as it should be, and the next start goes on.
func (d *Dir) mend(log *slog.Logger) ([]Mending, error) {
	start := time.Now()
	names, err := d.streams()
	if err != nil {
		return nil, err
	}
	// Read all of them before changing the first: if one is of an unknown form, or of a
	// later version, every file stays as it is.
	damaged, err := d.look(names)
	if err != nil {
		return nil, err
	}
	var all []Mending
	for _, stream := range names {
		done, err := d.prepare(stream, damaged[stream])
		all = append(all, done...)
		if err != nil {
			return all, fmt.Errorf("mend the files of stream %s: %w", stream, err)
		}
	}
	for _, m := range all {
		log.Error("a damaged file of the journal was mended", "file", m.File, "offset", m.Offset, "bytes", m.Bytes,
			"first_position", m.From, "last_position", m.To, "problem", m.Problem, "kept", m.Kept)
	}
	for _, key := range d.restored {
		log.Warn("the checksum of a description did not fit; it was put back from its copy", "description", key)
	}
	d.restored = nil
	if err := d.keepDescriptions(); err != nil {
		log.Warn("copying the descriptions of streams failed; older copies stand", "error", err)
	}
	log.Info("the journal's files were checked", "streams", len(names), "seconds", time.Since(start).Seconds())
	return all, nil
}

// condition is the condition of a stream's files.
type condition struct {
	damaged    bool
	unreadable error   // of a stream the relay can do without
	survey     *survey // of an undamaged stream
}

// look reads the files of the streams. An error means no file may be changed.
func (d *Dir) look(streams []string) (map[string]condition, error) {
	if err := d.knowDescriptions(streams); err != nil {
		return nil, d.refusal(err)
	}
	found := map[string]condition{}
	for _, stream := range streams {
		mendings, survey, err := d.mendStream(stream, true)
		switch {
		case err != nil && (!errors.Is(err, blockfile.ErrUnreadable) || slices.Contains(d.layout.journal(), stream)):
			return nil, fmt.Errorf("check the files of stream %s: %w", stream, d.refusal(err))
		}
		found[stream] = condition{damaged: len(mendings) > 0, unreadable: err}
		if err == nil && len(mendings) == 0 && stream == d.layout.Events {
			found[stream] = condition{survey: survey}
		}
	}
	return found, nil
}

// prepare syncs and mends one stream.
func (d *Dir) prepare(stream string, was condition) ([]Mending, error) {
	if was.unreadable != nil {
		moved, err := d.moveAside(stream, was.unreadable)
		return []Mending{moved}, err
	}
	dropped, err := d.dropEmptyBlock(stream)
	if err != nil {
		return nil, err
	}
	// First, as mending may put a block behind the newest.
	if err := renewNewestBlock(d.streamDir(stream)); err != nil {
		return nil, err
	}
	if !was.damaged && !dropped {
		reread := false
		if was.survey != nil {
			reread, err = d.take(stream, was.survey)
		}
		if err != nil || !reread {
			return nil, err
		}
	}
	done, _, err := d.mendStream(stream, false)
	return done, err
}

// moveAside moves an unreadable stream to the salvage folder. Its room makes it again,
// and reports the loss.
func (d *Dir) moveAside(stream string, cause error) (Mending, error) {
	m := Mending{
		Stream: stream, File: d.relative(d.streamDir(stream)), From: 1,
		Problem: fmt.Sprintf("the stream cannot be read: %v; its folder was moved, and the stream begins anew", cause),
		Kept:    salvageName(stream, "folder"),
	}
	to := filepath.Join(d.path, m.Kept)
	if err := durable.MakeDir(filepath.Dir(to)); err != nil {
		return m, fmt.Errorf("make salvage folder: %w", err)
	}
	if err := os.Rename(d.streamDir(stream), to); err != nil {
		return m, fmt.Errorf("move an unreadable stream aside: %w", errors.Join(err, cause))
	}
	return m, errors.Join(durable.SyncDir(filepath.Dir(to)), durable.SyncDir(d.streamDir("")))
}

// mendStream mends one stream. With dry, it only lists the mendings.
func (d *Dir) mendStream(stream string, dry bool) ([]Mending, *survey, error) {
	dir := d.streamDir(stream)
	described, err := d.mendDescriptions(stream, dry)
	if err != nil {
		return nil, nil, err
	}
	index, err := blockfile.ReadIndex(stream, dir)
	if err != nil {
		return nil, nil, err
	}
	files := described
	if index.Damaged {
		m, err := d.takeFile(stream, filepath.Join(dir, natsserver.MessagesDir, natsserver.IndexFile), "index", dry)
		if err != nil {
			return files, nil, err
		}
		m.Problem = "the index is damaged; the server makes it again"
		files = append(files, m)
	}
	newer := later{layout: &d.layout, since: index.First}
	survey, err := d.survey(stream, d.trustIn(stream), newer.look)
	if err == nil && (stream == d.layout.Events || stream == d.layout.DeadLetters) { // the others hold bytes of any kind
		err = newer.err()
	}
	if err == nil && !d.unknownIsDamage {
		err = survey.form.unknown()
	}
	if err != nil {
		return nil, nil, err
	}
	last := d.lastKnown(stream, index, survey)
	all := survey.damage(last)
	stretches := len(all)
	if end := survey.end(index); last > end {
		all = append(all, d.lostEnd(stream, end+1, last))
		if !dry {
			if err := d.moveEnd(stream, dir, last); err != nil {
				return all, survey, err
			}
		}
	}
	if !dry && stretches > 0 {
		if err := d.takeOutAll(stream, survey, all[:stretches]); err != nil {
			return all, survey, err
		}
	}
	positions, err := d.mendPositions(stream, dry)
	all = slices.Concat(files, all, positions)
	if err != nil || dry || stream != d.layout.Events {
		return all, survey, err
	}
	reread, err := d.take(stream, survey)
	if err != nil || !reread {
		return all, survey, err
	}
	more, survey, err := d.mendStream(stream, false)
	return append(all, more...), survey, err
}

func (d *Dir) lostEnd(stream string, from, to uint64) Mending {
	return Mending{
		Stream: stream, File: d.relative(d.streamDir(stream)), From: from, To: to,
		Problem: "the newest records are gone from the end of the stream",
	}
}

// lastKnown is the newest sequence that must exist.
func (d *Dir) lastKnown(stream string, index blockfile.Index, v *survey) uint64 {
	if stream != d.layout.Events {
		return max(index.Last, d.watermarks.End(stream))
	}
	last := max(index.Last, d.watermarks.newest())
	if _, known := d.watermarks.Read(Acknowledged); !known && v.torn {
		last = max(last, v.last+1) // a watermark is lost, too: the torn record may have been acknowledged
	}
	return last
}

// takeOutAll rewrites the blocks without their damaged stretches. The index goes first:
// with the newest frame unchanged, the server would go by it and list lost messages. A
// crash between the two leaves the damage to the next start. The end of the stream is in
// the blocks by then.
func (d *Dir) takeOutAll(stream string, v *survey, stretches []Mending) error {
	folder := filepath.Join(d.streamDir(stream), natsserver.MessagesDir)
	if err := os.Remove(filepath.Join(folder, natsserver.IndexFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take away the index of a damaged stream: %w", err)
	}
	if err := durable.SyncDir(folder); err != nil {
		return err
	}
	for i := range stretches {
		if err := d.takeOut(v, &stretches[i]); err != nil {
			return err
		}
	}
	return nil
}

// takeOut rewrites a block without a damaged stretch. The stretches of a block are all
// named before the first is taken out, with offsets into the original file.
func (d *Dir) takeOut(v *survey, m *Mending) error {
	b := v.damaged[m.File]
	if b == nil {
		return nil
	}
	kept := stretchName(m, b.Index)
	if err := keepFile(filepath.Join(d.path, kept), b.Bytes[m.Offset:m.Offset+m.Bytes]); err != nil {
		return err
	}
	m.Kept = kept
	if m.Offset != b.lastDamage {
		return nil // the rewrite removes all of them, once all are copied
	}
	if b.Holed {
		if err := d.keepHoled(b.Path, salvageName(v.stream, "block")); err != nil {
			return err
		}
	}
	return durable.WriteFile(b.Path, b.sound)
}

// moveEnd writes a block with only a tombstone, as the server does when its own state
// remembers a later end.
func (d *Dir) moveEnd(stream, dir string, last uint64) error {
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
	path := filepath.Join(dir, natsserver.MessagesDir, fmt.Sprintf("%d"+natsserver.BlockSuffix, index))
	b := blockfile.New(stream, path, index, nil)
	return durable.WriteFile(path, b.TombstoneFrame(last, time.Now()))
}

// mendPositions moves undecodable consumer states to the salvage folder.
func (d *Dir) mendPositions(stream string, dry bool) ([]Mending, error) {
	dir := d.streamDir(stream)
	consumers, err := blockfile.Consumers(dir)
	if err != nil {
		return nil, err
	}
	var all []Mending
	for _, name := range consumers {
		_, damaged := blockfile.ReadPosition(dir, name)
		if damaged == nil {
			continue
		}
		if !errors.Is(damaged, blockfile.ErrPosition) {
			return all, damaged
		}
		m, err := d.takeFile(stream, filepath.Join(dir, natsserver.ConsumersDir, name, natsserver.PositionFile), "position", dry)
		if err != nil {
			return all, err
		}
		m.Problem = fmt.Sprintf("%v; it is read from the start again", damaged)
		all = append(all, m)
	}
	return all, nil
}

// takeFile moves a damaged file of the server's to the salvage folder. After a crash
// behind the copy, the next start copies it once more.
func (d *Dir) takeFile(stream, path, what string, dry bool) (Mending, error) {
	m := Mending{Stream: stream, File: d.relative(path), From: 1}
	if dry {
		return m, nil
	}
	data, err := blockfile.ReadFile(path)
	m.Bytes, m.Kept = len(data), salvageName(stream, what)
	if errors.Is(err, blockfile.ErrUnreadable) {
		return m, d.setAside(path, m.Kept)
	}
	if err != nil {
		return m, fmt.Errorf("keep damaged %s: %w", what, err)
	}
	if err := keepFile(filepath.Join(d.path, m.Kept), data); err != nil {
		return m, err
	}
	if err := os.Remove(path); err != nil {
		return m, fmt.Errorf("take away damaged %s: %w", what, err)
	}
	return m, nil
}

// keepFile writes a file durably, and makes its folder if needed.
func keepFile(path string, data []byte) error {
	if err := durable.MakeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return durable.WriteFile(path, data)
}
