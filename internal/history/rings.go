package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/durable"
)

const (
	// Three rings of ringSize places reach back over 2^10, 2^20 and 2^30 records.
	rings    = 3
	ringSize = 1024
	// placeSize is the bytes of a place on disk: its two numbers and their checksum.
	placeSize = 24
)

// stepOf is the distance of the places of a ring, in positions.
func stepOf(ring int) uint64 { return 1 << (10 * ring) }

// at returns the checksum of the record at a position, if known. mu is held.
func (h *History) at(seq uint64) (sum uint64, known bool) {
	for ring := range rings {
		if step := stepOf(ring); seq%step == 0 {
			if at := h.rings[ring][seq/step%ringSize]; at.Seq == seq {
				return at.Sum, true
			}
		}
	}
	return 0, false
}

// put adds a place, except where its slots hold a newer one. mu is held.
func (h *History) put(at Place) {
	h.newest = max(h.newest, at.Seq)
	for ring := range rings {
		step := stepOf(ring)
		if at.Seq%step != 0 {
			return
		}
		slot := at.Seq / step % ringSize
		if h.rings[ring][slot].Seq < at.Seq {
			h.rings[ring][slot] = at
			h.write(ring, slot)
		}
	}
}

// places does the work of Places. mu is held.
func (h *History) places(to uint64) []Place {
	var all []Place
	for ring := range rings {
		for _, at := range h.rings[ring] {
			if at.Seq > 0 && at.Seq <= to {
				all = append(all, at)
			}
		}
	}
	slices.SortFunc(all, func(a, b Place) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.Compact(all)
}

// Open reads the history in a file, or begins one there. It calls failed after each
// write of a place, with nil for success, and one call at a time.
func Open(path string, failed func(error)) (*History, error) {
	h := &History{path: path, failed: failed}
	return h, h.open()
}

// open opens the file and reads its places, except damaged ones.
func (h *History) open() (err error) {
	if h.file, err = os.OpenFile(h.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("open the history of the journal's stream: %w", err)
	}
	var data [rings * ringSize * placeSize]byte
	if _, err := h.file.ReadAt(data[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the history of the journal's stream: %w", err)
	}
	for i := range rings * ringSize {
		if at, ok := decode(data[i*placeSize:]); ok && at.Seq%stepOf(i/ringSize) == 0 {
			h.rings[i/ringSize][i%ringSize] = at
			h.newest = max(h.newest, at.Seq)
		}
	}
	return nil
}

func encode(dst []byte, at Place) {
	binary.LittleEndian.PutUint64(dst, at.Seq)
	binary.LittleEndian.PutUint64(dst[8:], at.Sum)
	binary.LittleEndian.PutUint64(dst[16:], xxhash.Sum64(dst[:16]))
}

func decode(data []byte) (Place, bool) {
	at := Place{binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])}
	return at, at.Seq > 0 && binary.LittleEndian.Uint64(data[16:]) == xxhash.Sum64(data[:16])
}

// write writes a slot to the file. A crash leaves it whole or not at all, as it lies
// within a page. mu is held.
func (h *History) write(ring int, slot uint64) {
	if h.file == nil {
		return
	}
	var data [placeSize]byte
	encode(data[:], h.rings[ring][slot])
	_, err := h.file.WriteAt(data[:], int64(ring*ringSize+int(slot))*placeSize)
	h.failed(err)
}

// replace writes all places into a new file. mu is held.
func (h *History) replace() error {
	if h.file == nil {
		return nil
	}
	data := make([]byte, rings*ringSize*placeSize)
	for i := range rings * ringSize {
		encode(data[i*placeSize:], h.rings[i/ringSize][i%ringSize])
	}
	if err := durable.WriteFile(h.path, data); err != nil {
		return err
	}
	old := h.file
	if err := h.open(); err != nil {
		return err
	}
	return old.Close()
}

// Close syncs and closes the file.
func (h *History) Close() error {
	if h == nil || h.file == nil {
		return nil
	}
	return errors.Join(h.file.Sync(), h.file.Close())
}
