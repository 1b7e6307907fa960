package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

// damage is one strike at the files of a stopped relay. The records are those it hit
// for certain; no others may be lost.
type damage struct {
	about   string
	records []placed
}

// damages are the ways. Each draws from rng where it strikes. Without a file to aim at,
// it tears the end.
func damages() []func(s *scene, rng *rand.Rand) (damage, error) {
	return []func(s *scene, rng *rand.Rand) (damage, error){
		tearEnd, flipRecords, flipFile("msgs/index.db"), tearEnd, zeroPage,
		flipFile("obs/*/o.dat"), tearEnd, flipRecords, flipFile("meta.inf"), flipFile("obs/*/meta.inf"), flipMark,
		spoilControl, spoilControl, spoilControl,
	}
}

// controlFiles are those of the trail, its checkpoints, its key and the credentials,
// seen from the events' folder.
func controlFiles() (patterns []string) {
	for _, stream := range []string{"AUDITRELAY_AUDIT", "AUDITRELAY_CHECKPOINTS"} {
		for _, file := range []string{"msgs/*.blk", "msgs/index.db", "meta.inf", "meta.sum", "obs/*/o.dat", "obs/*/meta.inf"} {
			patterns = append(patterns, filepath.Join("..", stream, file))
		}
	}
	top := filepath.Join("..", "..", "..", "..", "..")
	return append(patterns, filepath.Join(top, "audit.key"), filepath.Join(top, "audit.key.checkpoint"),
		filepath.Join(top, "marks", "ends", "*"), filepath.Join(top, "store", "values.*"))
}

// spoilControl flips a bit of such a file, cuts it short, or deletes it. No event may
// be lost by it, and no push refused for long.
func spoilControl(s *scene, rng *rand.Rand) (damage, error) {
	patterns := controlFiles()
	path, size, err := s.someFile(rng, patterns[rng.IntN(len(patterns))])
	if err == nil && path == "" {
		return tearEnd(s, rng)
	}
	if err != nil || size > 0 && rng.IntN(4) > 0 {
		if err == nil {
			return spoil(path, size, rng)
		}
		return damage{}, err
	}
	return damage{about: filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path) + " deleted"}, os.Remove(path)
}

// tearEnd cuts the last bytes off the newest block, like a power cut before the file's
// length is on disk.
func tearEnd(s *scene, rng *rand.Rand) (damage, error) {
	paths, err := blockfile.List(s.streamDir())
	if err != nil || len(paths) == 0 {
		return damage{}, err
	}
	newest := paths[len(paths)-1]
	info, err := os.Stat(newest)
	if err != nil || info.Size() == 0 {
		return damage{}, err
	}
	// Mostly within the last record or two, now and then many of them.
	cut := 1 + rng.Int64N(min(info.Size(), 1<<(8+rng.IntN(10))))
	d, err := s.struck(fmt.Sprintf("the last %d bytes of the newest block cut off", cut), newest, int(info.Size()-cut), int(cut))
	return d, errors.Join(err, os.Truncate(newest, info.Size()-cut))
}

// flipRecords changes one bit, or a few, of a block.
func flipRecords(s *scene, rng *rand.Rand) (damage, error) {
	path, size, err := s.someFile(rng, "msgs/*.blk")
	if err != nil || size == 0 {
		return damage{}, err
	}
	d := damage{about: "bits of a block flipped"}
	var at []int
	for range 1 + rng.IntN(4) {
		at = append(at, rng.IntN(size))
		hit, err := s.struck("", path, at[len(at)-1], 1)
		if err != nil {
			return d, err
		}
		d.records = append(d.records, hit.records...)
	}
	return d, flip(path, rng, at)
}

// zeroPage leaves a page of a block without its content.
func zeroPage(s *scene, rng *rand.Rand) (damage, error) {
	const page = 4096
	path, size, err := s.someFile(rng, "msgs/*.blk")
	if err != nil || size == 0 {
		return damage{}, err
	}
	from := rng.IntN(size) / page * page
	bytes := min(page, size-from)
	d, err := s.struck("a page of a block is zeros", path, from, bytes)
	return d, errors.Join(err, overwrite(path, from, make([]byte, bytes)))
}

// flipFile changes bits of a file of the server's beside the blocks, or cuts
// it: no record may be lost by it.
func flipFile(pattern string) func(s *scene, rng *rand.Rand) (damage, error) {
	return func(s *scene, rng *rand.Rand) (damage, error) {
		path, size, err := s.someFile(rng, pattern)
		if err == nil && size == 0 {
			return tearEnd(s, rng)
		}
		if err != nil {
			return damage{}, err
		}
		return spoil(path, size, rng)
	}
}

// flipMark is the same for the relay's own notes.
func flipMark(s *scene, rng *rand.Rand) (damage, error) {
	path, size, err := s.someFile(rng, filepath.Join("..", "..", "..", "..", "..", "marks", "*"))
	if err != nil || size == 0 {
		return damage{}, err
	}
	return spoil(path, size, rng)
}

func spoil(path string, size int, rng *rand.Rand) (damage, error) {
	name := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
	if rng.IntN(3) == 0 {
		return damage{about: name + " cut short"}, os.Truncate(path, int64(rng.IntN(size)))
	}
	return damage{about: "a bit of " + name + " flipped"}, flip(path, rng, []int{rng.IntN(size)})
}

// someFile draws a file of the stream's folder, and gives its size; 0 where
// there is none.
func (s *scene) someFile(rng *rand.Rand, pattern string) (path string, size int, err error) {
	paths, err := filepath.Glob(filepath.Join(s.streamDir(), pattern))
	if err != nil || len(paths) == 0 {
		return "", 0, err
	}
	path = paths[rng.IntN(len(paths))]
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	return path, int(info.Size()), nil
}

// struck returns the records with bytes in a stretch of a file.
func (s *scene) struck(about, path string, from, bytes int) (damage, error) {
	d := damage{about: about}
	all, err := s.records()
	for _, r := range all {
		if r.path == path && r.offset < from+bytes && from < r.offset+r.size {
			d.records = append(d.records, r)
		}
	}
	return d, err
}

// flip changes a bit of each of the bytes.
func flip(path string, rng *rand.Rand, at []int) error {
	for _, offset := range at {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		var b [1]byte
		_, err = f.ReadAt(b[:], int64(offset))
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		b[0] ^= 1 << rng.IntN(8)
		if err := overwrite(path, offset, b[:]); err != nil {
			return err
		}
	}
	return nil
}

func overwrite(path string, offset int, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, int64(offset))
	return errors.Join(err, f.Close())
}
