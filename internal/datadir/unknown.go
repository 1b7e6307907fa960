package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// Some damage is chance. Much damage is more likely a mistake of ours or of the server's,
// such as an unknown format.
const (
	// chanceRecords damaged records may be chance. Among more records, 1 in chanceShare
	// may be.
	chanceRecords = 10
	chanceShare   = 100
)

// BeyondChance reports whether so many damaged records beside so many readable
// ones are too many for chance.
func BeyondChance(damaged, readable uint64) bool {
	all := damaged + readable
	return damaged > chanceRecords || all >= chanceShare && damaged*chanceShare > all
}

// adviceUnknown tells a person how to handle files of an unknown form.
const adviceUnknown = "nothing was changed; run the auditrelay that wrote it, or if it is damage for certain, 'auditrelay journal repair --unknown-is-damage', which moves it to the salvage folder"

// refusal adds an advice to an error of a start that changes nothing.
func (d *Dir) refusal(err error) error {
	switch {
	case errors.Is(err, blockfile.ErrForm):
		return fmt.Errorf("%w; %s", err, adviceUnknown)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; nothing was changed; give the files to the relay's user: chown -R USER %s", err, d.path)
	case errors.Is(err, blockfile.ErrUnreadable):
		return fmt.Errorf("%w; nothing was changed; check the disk, and put a copy of the file or folder back", err)
	}
	return fmt.Errorf("%w; nothing was changed", err)
}

// form tells whether the blocks of a stream are of the known form. A block with one good
// checksum is: its faults are damage. Mending is safe then, and so is taking pushes,
// whatever the amount: it removes no sound record, and the salvage folder keeps all
// removed bytes.
//
// A block without any good checksum may be sound and of an unknown form, such as one with
// another checksum. If there are more of them than chance explains, nothing is mended. No
// push is taken either then, as the server would cut off such a block.
type form struct {
	sound  uint64 // frames with a good checksum
	shaped uint64 // frames in blocks without one, by their lengths
	noise  int    // bytes in blocks without one, except zeros only
	first  string // the first such block
	blocks int    // such blocks
}

// enoughNoise bytes without any frame mean another form of all blocks. Fewer may be the
// rest of a torn write.
const enoughNoise = 64 << 10

// look takes a block into account.
func (f *form) look(file string, b *blockfile.Block, frames []blockfile.Frame) {
	good := uint64(0)
	for i := range frames {
		if frames[i].Kind != blockfile.Damaged {
			good++
		}
	}
	f.sound += good
	if good > 0 || len(bytes.Trim(b.Bytes, "\x00")) == 0 {
		return
	}
	if f.blocks++; f.blocks == 1 {
		f.first = file
	}
	f.shaped += uint64(b.Shaped())
	f.noise += len(b.Bytes)
}

// unknown returns a [blockfile.ErrForm] if the blocks are of another form.
func (f *form) unknown() error {
	switch {
	case BeyondChance(f.shaped, f.sound):
	case f.sound == 0 && (f.shaped > 2 || f.noise >= enoughNoise):
	default:
		return nil
	}
	return fmt.Errorf("%w: %d blocks, %s first, hold %d records without a right checksum, beside %d sound ones",
		blockfile.ErrForm, f.blocks, f.first, f.shaped, f.sound)
}

// knowDescriptions returns a [blockfile.ErrForm] if all descriptions are readable and
// every checksum differs from ours.
func (d *Dir) knowDescriptions(streams []string) error {
	sound, readable := 0, 0
	look := func(key, dir string) error {
		good, err := blockfile.Described(key, dir)
		if err != nil || good {
			sound++
			return err
		}
		if text, err := os.ReadFile(filepath.Join(dir, natsserver.Description)); err == nil && json.Valid(text) {
			readable++
		}
		return nil
	}
	for _, stream := range streams {
		if err := d.eachDescription(stream, look); err != nil {
			return err
		}
	}
	if sound == 0 && readable > 2 {
		return fmt.Errorf("%w: none of %d descriptions of streams has the right checksum", blockfile.ErrForm, readable)
	}
	return nil
}

// TakeUnknownForDamage lets [Dir.Start] mend blocks of an unknown form, on a person's
// decision.
func (d *Dir) TakeUnknownForDamage() { d.unknownIsDamage = true }
