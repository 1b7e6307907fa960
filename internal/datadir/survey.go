package datadir

import (
	"slices"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

// survey sums up the block files of one stream.
type survey struct {
	stream          string
	first, last     uint64 // sequences of messages and of their tombstones
	messages, bytes uint64
	blocks          int
	damages         []Mending
	damaged         map[string]*damagedBlock // by file, as in damages
	torn            bool                     // the newest of damages is the end of the newest block
	gaps            []Span                   // positions without a record, between first and last

	paths     []string            // of the blocks, oldest first
	summaries []blockfile.Summary // of the blocks; fewer if one has none
	trusted   []*trusted          // blocks not read
	verified  []note              // sealed blocks just read and without a note
	form      form
}

// damagedBlock is a block, with the frames left without the damage.
type damagedBlock struct {
	*blockfile.Block
	sound      []byte
	lastDamage int // its offset
}

// survey reads the stream's blocks, one at a time, and calls each with the messages. It
// skips the sealed blocks with a note in trust, unless trust is nil.
func (d *Dir) survey(stream string, trust *notes, each func(f *blockfile.Frame)) (*survey, error) {
	paths, err := blockfile.List(d.streamDir(stream))
	if err != nil {
		return nil, err
	}
	v := &survey{stream: stream, blocks: len(paths), damaged: map[string]*damagedBlock{}, paths: paths}
	var asked []uint64
	if trust != nil {
		if asked, err = askedFor(d.streamDir(stream)); err != nil {
			return nil, err
		}
	}
	for i, path := range paths {
		if noted, ok := trust.of(path); ok && i < len(paths)-1 && !noted.holdsAny(asked) {
			v.trust(noted, path)
			continue
		}
		as, err := identify(path)
		if err != nil {
			return nil, err
		}
		b, err := blockfile.Read(stream, path)
		if err != nil {
			return nil, err
		}
		frames := b.Frames(v.last)
		if b.Holed && !slices.ContainsFunc(frames, isDamaged) { // it must be written anew all the same
			frames = append(frames, blockfile.Frame{Offset: len(b.Bytes), Kind: blockfile.Damaged})
		}
		v.form.look(d.relative(path), b, frames)
		v.torn = false
		for i := range frames {
			v.add(stream, d.relative(path), b, &frames[i], i == len(frames)-1)
			if f := &frames[i]; each != nil && f.Kind == blockfile.Message {
				each(f)
			}
		}
		v.summarise(as, b.Index, frames, i < len(paths)-1)
	}
	return v, nil
}

// trust counts a block by its note.
func (v *survey) trust(n note, path string) {
	v.torn = false
	v.bytes += uint64(n.Size)
	v.messages += n.Messages
	v.form.sound += n.Messages
	v.place(n.First)
	for _, r := range n.Missing {
		v.gaps = append(v.gaps, Span(r))
	}
	v.last = n.Last
	v.summaries = append(v.summaries, n.Summary)
	v.trusted = append(v.trusted, &trusted{note: n, path: path})
}

// summarise keeps a block's entry for the server's index.
func (v *survey) summarise(as identity, index uint32, frames []blockfile.Frame, sealed bool) {
	s, ok := blockfile.Summarise(index, frames, noneDeleted)
	if !ok {
		return
	}
	v.summaries = append(v.summaries, s)
	if sealed && s.Messages > 0 && !slices.ContainsFunc(frames, isDamaged) {
		v.verified = append(v.verified, note{as, s})
	}
}

// add counts a frame.
func (v *survey) add(stream, file string, b *blockfile.Block, f *blockfile.Frame, final bool) {
	v.bytes += uint64(f.Size)
	switch f.Kind {
	case blockfile.Damaged:
		v.damages = append(v.damages, Mending{
			Stream: stream, File: file, Offset: f.Offset, Bytes: f.Size, From: v.last + 1,
			Problem: "bytes that are no record",
		})
		if b.Holed {
			v.damages[len(v.damages)-1].Problem = "bytes the disk does not give"
		}
		if final {
			v.torn = true
		}
		d := v.damaged[file]
		if d == nil {
			d = &damagedBlock{Block: b, sound: append([]byte(nil), b.Bytes[:f.Offset]...)}
			v.damaged[file] = d
		}
		d.lastDamage = f.Offset
		return
	case blockfile.Message, blockfile.Erased:
		v.place(f.Seq)
		if f.Kind == blockfile.Message {
			v.messages++
		}
	case blockfile.Tombstone:
		// In a block of its own it marks the stream's end.
		if v.last < f.Seq {
			v.place(f.Seq + 1)
			v.last = f.Seq
		}
	}
	if d := v.damaged[file]; d != nil {
		d.sound = append(d.sound, b.Bytes[f.Offset:f.Offset+f.Size]...)
	}
}

// place moves the end to seq: the last position of the damage before it is known then.
func (v *survey) place(seq uint64) {
	if seq <= v.last {
		return
	}
	if v.first == 0 {
		v.first = seq
	} else if seq > v.last+1 {
		v.gaps = append(v.gaps, Span{From: v.last + 1, To: seq - 1})
	}
	for i := len(v.damages) - 1; i >= 0 && v.damages[i].To == 0; i-- {
		v.damages[i].To = seq - 1
	}
	v.last = seq
}

// end is the newest sequence the server will know of by itself.
func (v *survey) end(index blockfile.Index) uint64 {
	if index.Trusted && len(v.damages) == 0 {
		return max(v.last, index.Last)
	}
	return v.last
}

// damage returns the damaged stretches of a stream with the end last.
func (v *survey) damage(last uint64) []Mending {
	for i := range v.damages {
		d := &v.damages[i]
		if d.To == 0 && last >= d.From {
			d.To = last
		}
		if i == len(v.damages)-1 && v.torn {
			d.Problem = "the end of the newest block is torn"
			if last < d.From {
				d.To = d.From - 1
				d.Problem += "; as far as is known it was not acknowledged"
			}
		}
	}
	return v.damages
}
