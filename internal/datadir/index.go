package datadir

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// begin prepares the directory for a start of the server.
func (d *Dir) begin(log *slog.Logger) {
	if d.notes == nil {
		d.notes = d.readNotes(d.layout.Events, log)
	}
	d.doubt, d.trusted = false, nil
}

// trustIn returns the notes for a survey of the stream. There are none outside of a
// start, nor after this start found out that the server will read the blocks.
func (d *Dir) trustIn(stream string) *notes {
	if stream != d.layout.Events || d.doubt {
		return nil
	}
	return d.notes
}

// askedFor lists the positions the server may read as it starts: those of the consumers,
// in a stream with missing records.
func askedFor(streamDir string) (all []uint64, err error) {
	consumers, err := blockfile.Consumers(streamDir)
	if err != nil {
		return nil, err
	}
	for _, name := range consumers {
		if at, err := blockfile.ReadPosition(streamDir, name); err == nil { // else the start removes it
			all = append(all, at.Acknowledged+1, at.Delivered+1)
		}
	}
	return all, nil
}

// take prepares the server for the blocks of the mended events' stream, and notes the
// blocks just read. It returns true if all blocks must be read again.
//
// The server gets an index.db of all blocks, so it reads none. If the blocks are not
// plain, there is no such index: the server reads all, and would cut off each block
// rotten since its note. So the noted ones must be mended too.
func (d *Dir) take(stream string, v *survey) (reread bool, err error) {
	paths, err := blockfile.List(d.streamDir(stream))
	if err != nil || len(paths) > len(v.paths) { // mending has moved the end
		return err == nil, err
	}
	sound, err := d.renewIndex(stream, v)
	if err != nil {
		return false, err
	}
	if !sound && len(v.trusted) > 0 {
		d.doubt = true
		return true, nil
	}
	d.trusted = v.trusted
	d.noteAll(stream, v.verified)
	return false, nil
}

// noteAll notes blocks read by a survey. After a failure the scrub tries again, and
// reports the reason.
func (d *Dir) noteAll(stream string, blocks []note) {
	for _, one := range blocks {
		path := filepath.Join(d.streamDir(stream), natsserver.MessagesDir, fmt.Sprint(one.Index, natsserver.BlockSuffix))
		if err := d.notes.add(path, one); err != nil {
			return
		}
	}
}

// renewIndex writes the index.db of a stream, as the server would after reading all
// blocks. It returns false if the blocks are not plain. A crash leaves the old index, the
// new one, or none: the next start does the same again.
func (d *Dir) renewIndex(stream string, v *survey) (sound bool, err error) {
	if len(v.paths) == 0 {
		return true, nil // of a new stream
	}
	if len(v.summaries) < len(v.paths) {
		return false, nil
	}
	buried, first, last := v.buried()
	for i, path := range v.paths {
		s := &v.summaries[i]
		if s.Last < first || last < s.First {
			continue
		}
		if ok, err := bury(stream, path, s, buried); err != nil || !ok {
			return false, err
		}
	}
	checksum, err := blockfile.LastChecksum(v.paths[len(v.paths)-1])
	if err != nil {
		return false, err
	}
	text, ok := blockfile.EncodeIndex(stream, v.summaries, checksum)
	if !ok {
		return false, nil
	}
	path := filepath.Join(d.streamDir(stream), natsserver.MessagesDir, natsserver.IndexFile)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return true, nil
	}
	return true, keepFile(path, text)
}

// buried lists the positions named by tombstones, within the range of the blocks, and
// returns this range.
func (v *survey) buried() (all map[uint64]bool, first, last uint64) {
	all, first = map[uint64]bool{}, math.MaxUint64
	for i := range v.summaries {
		for _, r := range v.summaries[i].Tombstones {
			for seq := max(r.From, v.first); seq <= min(r.To, v.last); seq++ {
				all[seq] = true
				first, last = min(first, seq), max(last, seq)
			}
		}
	}
	return all, first, last
}

// bury removes deleted messages from a block's summary. It must read the block for it:
// mostly the oldest one, partly trimmed.
func bury(stream, path string, s *blockfile.Summary, buried map[uint64]bool) (bool, error) {
	hit := false
	for seq := range buried {
		hit = hit || s.Holds(seq)
	}
	if !hit {
		return true, nil
	}
	b, err := blockfile.Read(stream, path)
	if err != nil {
		return false, err
	}
	frames := b.Frames(0)
	for i := range frames {
		if frames[i].Kind == blockfile.Damaged {
			return false, nil // rotten since its note; the server must not go by the note
		}
	}
	var plain bool
	*s, plain = blockfile.Summarise(s.Index, frames, func(seq uint64) bool { return buried[seq] })
	return plain && s.Messages > 0, nil
}

// dropEmptyBlock removes a newest block without content, as the server does when it reads
// its blocks: it was killed between making the block and writing to it. A crash here
// leaves the block for the next start.
func (d *Dir) dropEmptyBlock(stream string) (dropped bool, err error) {
	paths, err := blockfile.List(d.streamDir(stream))
	if err != nil || len(paths) < 2 || stream != d.layout.Events {
		return false, err
	}
	newest := paths[len(paths)-1]
	info, err := os.Stat(newest)
	if err != nil || info.Size() > 0 {
		return false, err
	}
	if err := os.Remove(newest); err != nil {
		return false, fmt.Errorf("remove an empty block: %w", err)
	}
	return true, nil
}
