package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/durable"
)

const (
	// ringSize is how many places each ring of a past holds, and ringStep how many
	// positions lie between two of them, compared with the ring before.
	ringSize = 1024
	ringStep = 1024
	// rings reach back over 2^10, 2^20 and 2^30 records.
	rings = 3
	// placeSize is that of a place on disk: its two numbers and their checksum, in bytes.
	placeSize = 24
	pastFile  = "past"
)

// place is a position and the checksum of the record that stood there.
type place struct{ seq, sum uint64 }

// past is what the relay knows of the events' stream: which record stood at
// which position. A server that lost the end of a stream gives its positions to
// other records, as if nothing had happened; against the past that shows.
//
// It knows each of the newest positions, and of the older ones fewer and fewer.
// That of an external stream is also kept on the relay's own disk, without a
// sync: after a kill it is exact, after a power loss it may be older.
type past struct {
	file  *os.File // nil where it is not kept
	path  string
	marks *datadir.Watermarks // that failures are told by

	comparing sync.Mutex // held while the past is compared with the stream

	mu     sync.Mutex // guards what follows
	rings  [rings][ringSize]place
	newest uint64 // the greatest position that is known
	// base is where the stream ended when the journal was opened, or when it last
	// went back: positions up to it cannot be given to further records.
	base uint64
	// doubt is the lowest position that turned out to hold another record, until
	// the past is compared with the stream; 0 for none.
	doubt uint64
	// stayed has, for each time that the stream went back, the newest position that stayed.
	stayed []uint64
}

// openPast reads what is kept of a past in dir; without a dir nothing is kept.
func openPast(dir string, m *datadir.Watermarks) (*past, error) {
	p := &past{marks: m}
	if dir == "" {
		return p, nil
	}
	p.path = filepath.Join(dir, pastFile)
	return p, p.open()
}

// open opens the file and reads its places, but for those that are damaged.
func (p *past) open() (err error) {
	if p.file, err = os.OpenFile(p.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("open what is known of the journal's stream: %w", err)
	}
	var data [rings * ringSize * placeSize]byte
	if _, err := p.file.ReadAt(data[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read what is known of the journal's stream: %w", err)
	}
	for i := range rings * ringSize {
		if at, ok := decodePlace(data[i*placeSize:]); ok && at.seq%stepOf(i/ringSize) == 0 {
			p.rings[i/ringSize][i%ringSize] = at
			p.newest = max(p.newest, at.seq)
		}
	}
	return nil
}

// stepOf is how many positions lie between two places of a ring.
func stepOf(ring int) uint64 { return 1 << (10 * ring) }

func encodePlace(dst []byte, at place) {
	binary.LittleEndian.PutUint64(dst, at.seq)
	binary.LittleEndian.PutUint64(dst[8:], at.sum)
	binary.LittleEndian.PutUint64(dst[16:], xxhash.Sum64(dst[:16]))
}

func decodePlace(data []byte) (place, bool) {
	at := place{binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])}
	return at, at.seq > 0 && binary.LittleEndian.Uint64(data[16:]) == xxhash.Sum64(data[:16])
}

// given notes that the server gave the position to a further record. It returns
// false where the position was another's, or may have been: then the past has to
// be compared with the stream.
func (p *past) given(at place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, known := p.at(at.seq)
	if p.doubt == 0 && !known && at.seq > p.base && at.seq+ringSize > p.newest {
		p.put(at)
		return true
	}
	return p.fits(at, known && sum == at.sum)
}

// read notes that the server gave out a record. It returns false where the
// position was another's: then the past has to be compared with the stream.
func (p *past) read(at place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, known := p.at(at.seq)
	if p.doubt == 0 && !known {
		p.put(at)
		return true
	}
	return p.fits(at, known && sum == at.sum)
}

// fits notes a doubt where a record does not fit. mu is held.
func (p *past) fits(at place, fit bool) bool {
	if !fit && (p.doubt == 0 || at.seq < p.doubt) {
		p.doubt = at.seq
	}
	return fit && p.doubt == 0
}

// reach is the newest position that is known, and whether a record was found
// that does not fit.
func (p *past) reach() (newest uint64, doubt bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest, p.doubt != 0
}

// at is the checksum of the record at a position, if it is known. mu is held.
func (p *past) at(seq uint64) (sum uint64, known bool) {
	for ring := range rings {
		if step := stepOf(ring); seq%step == 0 {
			if at := p.rings[ring][seq/step%ringSize]; at.seq == seq {
				return at.sum, true
			}
		}
	}
	return 0, false
}

// put adds a place, where its slots hold no newer one. mu is held.
func (p *past) put(at place) {
	p.newest = max(p.newest, at.seq)
	for ring := range rings {
		step := stepOf(ring)
		if at.seq%step != 0 {
			return
		}
		slot := at.seq / step % ringSize
		if p.rings[ring][slot].seq < at.seq {
			p.rings[ring][slot] = at
			p.keep(ring, slot)
		}
	}
}

// keep writes a slot to the file. A crash leaves it whole or not at all, as it
// lies within a page. mu is held.
func (p *past) keep(ring int, slot uint64) {
	if p.file == nil {
		return
	}
	var data [placeSize]byte
	encodePlace(data[:], p.rings[ring][slot])
	_, err := p.file.WriteAt(data[:], int64(ring*ringSize+int(slot))*placeSize)
	p.marks.Tell(pastFile, err)
}

// suspect is the place that shows best whether the stream went back: in doubt
// one that is not newer than that, else the newest.
func (p *past) suspect() (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sum, known := p.at(p.doubt); known && p.doubt > 0 {
		return place{p.doubt, sum}, true
	}
	all, to := p.placesTo(^uint64(0)), p.newest
	if p.doubt > 0 && p.doubt <= p.base {
		to = p.base
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].seq <= to {
			return all[i], true
		}
	}
	return place{}, false
}

// places are those up to a position, oldest first.
func (p *past) places(to uint64) []place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.placesTo(to)
}

// placesTo does what places says. mu is held.
func (p *past) placesTo(to uint64) []place {
	var all []place
	for ring := range rings {
		for _, at := range p.rings[ring] {
			if at.seq > 0 && at.seq <= to {
				all = append(all, at)
			}
		}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	return slices.Compact(all)
}

// turn says from now on that the stream went back: acknowledgements of what was
// read before are void.
func (p *past) turn(stays uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stayed = append(p.stayed, stays)
}

// since gives how often the stream went back so far, and of the times behind the
// first n the lowest position that stayed.
func (p *past) since(n int) (turns int, stays uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stays = ^uint64(0)
	for _, s := range p.stayed[n:] {
		stays = min(stays, s)
	}
	return len(p.stayed), stays
}

// begin says where the stream ends, before anything is appended.
func (p *past) begin(end uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base = end
}

// settle ends a doubt: the stream did not go back.
func (p *past) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubt = 0
}

// reset forgets the places behind one, as the stream went back to that and ends
// at base now. The file is replaced whole: a crash leaves the old one, by which
// the next start finds the same.
func (p *past) reset(stays, base uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := [rings][ringSize]place{}
	p.newest, p.base, p.doubt = 0, base, 0
	for ring := range rings {
		for slot, at := range p.rings[ring] {
			if at.seq <= stays {
				kept[ring][slot] = at
				p.newest = max(p.newest, at.seq)
			}
		}
	}
	p.rings = kept
	if p.file == nil {
		return nil
	}
	data := make([]byte, rings*ringSize*placeSize)
	for i := range rings * ringSize {
		encodePlace(data[i*placeSize:], p.rings[i/ringSize][i%ringSize])
	}
	if err := durable.WriteFile(p.path, data); err != nil {
		return err
	}
	old := p.file
	if err := p.open(); err != nil {
		return err
	}
	return old.Close()
}

func (p *past) close() error {
	if p == nil || p.file == nil {
		return nil
	}
	return errors.Join(p.file.Sync(), p.file.Close())
}
