package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// strike is one damage to the files of a stopped relay. The records are those of events that it
// certainly hit; no others may be lost.
type strike struct {
	about   string
	records []placed
	// doubt is how many positions after the last record may be named, since what was there was
	// perhaps acknowledged.
	doubt store.Pos
}

// strikes are the kinds of damage. Each draws from rng where it strikes. If there is no file to
// aim at, it tears the end.
func strikes() []func(s *scene, rng *rand.Rand) (strike, error) {
	return []func(s *scene, rng *rand.Rand) (strike, error){
		tearEnd, flipRecords, spoilMarks, tearEnd, zeroPage, spoilHeader, tearEnd, flipRecords, spoilTable, loseSegment,
		spoilControl, spoilControl, spoilControl,
	}
}

// segment draws one of the files of the events, and says where its records end.
func (s *scene) segment(rng *rand.Rand) (path string, records []damage.Place, err error) {
	all, err := s.files().Records(eventsLog)
	if err != nil || len(all) == 0 {
		return "", nil, err
	}
	path = all[rng.IntN(len(all))].File
	return path, slices.DeleteFunc(all, func(p damage.Place) bool { return p.File != path }), nil
}

func endOf(records []damage.Place) int64 {
	last := records[len(records)-1]
	return last.Offset + last.Size
}

// hit returns the records of events that have bytes in a part of a file.
func (s *scene) hit(path string, from, size int64) ([]placed, error) {
	places, err := s.files().Hit(eventsLog, damage.Record, path, from, size)
	if err != nil {
		return nil, err
	}
	return load(places)
}

// tearEnd cuts the last bytes off the newest records, as a file system does that loses the
// end of a file.
func tearEnd(s *scene, rng *rand.Rand) (strike, error) {
	all, err := s.files().Records(eventsLog)
	if err != nil || len(all) == 0 {
		return strike{}, err
	}
	end, path := endOf(all), all[len(all)-1].File
	// Mostly within the last record or two, now and then many of them.
	cut := 1 + rng.Int64N(min(end, 1<<(8+rng.IntN(10))))
	hit, err := s.hit(path, end-cut, cut)
	return strike{about: fmt.Sprintf("the last %d bytes cut off", cut), records: hit}, errors.Join(err, os.Truncate(path, end-cut))
}

// flipRecords changes one bit, or a few, of a segment.
func flipRecords(s *scene, rng *rand.Rand) (strike, error) {
	path, records, err := s.segment(rng)
	if err != nil || path == "" {
		return strike{}, err
	}
	d := strike{about: "bits of a segment flipped"}
	var at []int64
	for range 1 + rng.IntN(4) {
		at = append(at, rng.Int64N(endOf(records)))
		hit, err := s.hit(path, at[len(at)-1], 1)
		if err != nil {
			return d, err
		}
		d.records = append(d.records, hit...)
	}
	for _, offset := range at {
		err = errors.Join(err, damage.Flip(path, offset))
	}
	return d, err
}

// zeroPage leaves a page of a segment without its content.
func zeroPage(s *scene, rng *rand.Rand) (strike, error) {
	const page = 4096
	path, records, err := s.segment(rng)
	if err != nil || path == "" {
		return strike{}, err
	}
	from := rng.Int64N(endOf(records)) / page * page
	hit, err := s.hit(path, from, page)
	return strike{about: "a page of a segment is zeros", records: hit}, errors.Join(err, damage.ZeroPage(path, from))
}

// spoilHeader harms one of the two copies of a segment's header: nothing is lost by it.
func spoilHeader(s *scene, rng *rand.Rand) (strike, error) {
	path, _, err := s.segment(rng)
	if err != nil || path == "" {
		return strike{}, err
	}
	const page, header = 4096, 512
	return strike{about: "a bit of a segment's header flipped"}, damage.Flip(path, rng.Int64N(2)*page+rng.Int64N(header))
}

// loseSegment removes a file of events.
func loseSegment(s *scene, rng *rand.Rand) (strike, error) {
	path, records, err := s.segment(rng)
	if err != nil || path == "" {
		return strike{}, err
	}
	hit, err := load(records)
	return strike{about: filepath.Base(path) + " removed", records: hit}, errors.Join(err, os.Remove(path))
}

// eventsMark is the file that says where the events begin and end.
const eventsMark = eventsLog + ".end"

// spoilMarks harms it.
func spoilMarks(s *scene, rng *rand.Rand) (strike, error) {
	d, err := spoilOne(s, rng, func(name string) bool { return name == eventsMark })
	d.doubt = 1000
	return d, err
}

// spoilTable harms the values of the table: positions and credentials.
func spoilTable(s *scene, rng *rand.Rand) (strike, error) {
	return spoilOne(s, rng, func(name string) bool { return name != eventsMark && !strings.Contains(name, "/") })
}

// spoilControl harms a file of the trail, its checkpoints or its key, of the quarantine or
// of the dead letters. No event may be lost by it, and no push refused for long.
func spoilControl(s *scene, rng *rand.Rand) (strike, error) {
	if rng.IntN(4) == 0 {
		name := []string{"audit.key", "audit.key.checkpoint"}[rng.IntN(2)]
		return spoil(filepath.Join(s.dataDir, name), name, rng)
	}
	return spoilOne(s, rng, func(name string) bool {
		log, _, inLog := strings.Cut(name, "/")
		return inLog && slices.Contains([]string{lettersLog, quarantineLog, entriesLog, checkpointsLog}, log)
	})
}

// spoilOne harms a file of the store.
func spoilOne(s *scene, rng *rand.Rand, wanted func(name string) bool) (strike, error) {
	names, err := s.files().Files()
	names = slices.DeleteFunc(names, func(name string) bool { return !wanted(name) })
	if err != nil || len(names) == 0 {
		return strike{}, err
	}
	name := names[rng.IntN(len(names))]
	return spoil(filepath.Join(string(s.files()), name), name, rng)
}

// spoil flips a bit of a file, cuts it short or removes it.
func spoil(path, name string, rng *rand.Rand) (strike, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return strike{about: name + ", which is not there"}, nil
	}
	if err != nil {
		return strike{}, err
	}
	switch way := rng.IntN(3); {
	case way == 0 || info.Size() == 0:
		return strike{about: name + " removed"}, os.Remove(path)
	case way == 1:
		return strike{about: name + " cut short"}, os.Truncate(path, rng.Int64N(info.Size()))
	default:
		return strike{about: "a bit of " + name + " flipped"}, damage.Flip(path, rng.Int64N(info.Size()))
	}
}
