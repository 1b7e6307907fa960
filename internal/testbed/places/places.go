// Package places finds records and values in the files of a store, by the form of the files alone:
// no test of the store rests on the code that it tests.
package places

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Kind says what stands at a place.
type Kind string

// The kinds of places.
const (
	// Record is a record of a log.
	Record Kind = "record"
	// Durable is a value of the table in one of its two copies.
	Durable Kind = "value"
	// Lazy is a value of the table that is written without a sync.
	Lazy Kind = "lazy value"
)

// Place is where something stands in the files of a store.
type Place struct {
	Kind Kind
	// Pos is the position of a record, or the revision of a value.
	Pos store.Pos
	// Key is the key of a record or a value.
	Key          string
	File         string
	Offset, Size int64
}

// The form of a record and of a value, as internal/store/disk has it.
const (
	pageSize  = 4096
	dataStart = 2 * pageSize
	headSize  = 48
	sumSize   = 8
)

var marker = []byte{0xA7, 'r', 'e', 0x1C}

// In are the places in the files of a log, or of the table for an empty name, in the order of the
// files.
func In(dir, log string) (all []Place, err error) {
	if log != "" {
		return records(filepath.Join(dir, log))
	}
	for _, file := range []struct {
		name    string
		kind    Kind
		purpose string
	}{{"values.a", Durable, "durable values"}, {"values.b", Durable, "durable values"}, {"lazy", Lazy, "lazy values"}} {
		path := filepath.Join(dir, file.name)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, placesIn(b, sum(0, []byte(file.purpose)), ^store.Pos(0), Place{Kind: file.kind, File: path})...)
	}
	return all, nil
}

const segment = ".seg"

// records are those in the folder of a log.
func records(dir string) (all []Place, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+segment))
	if err != nil {
		return nil, err
	}
	last := ^store.Pos(0)
	for _, path := range slices.Backward(files) { // each has the records up to the base of the next
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if seed, ok := Seed(b); ok {
			all = append(placesIn(b, seed, last, Place{Kind: Record, File: path}), all...)
		}
		base, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), segment), 10, 64)
		if err != nil {
			return nil, err
		}
		last = store.Pos(base - 1)
	}
	return all, nil
}

// Seed is the seed of the checksums in a segment, by either copy of its header.
func Seed(b []byte) (seed uint64, ok bool) {
	const size, log, base, secret = 512, 16, 32, 64
	for at := 0; at < dataStart && at+size <= len(b); at += pageSize {
		if h := b[at : at+size]; binary.LittleEndian.Uint64(h[size-sumSize:]) == sum(0, h[:size-sumSize]) {
			digest := sha256.Sum256(bytes.Join([][]byte{h[secret : secret+16], h[log : log+16], h[base : base+8]}, nil))
			return binary.LittleEndian.Uint64(digest[:]), true
		}
	}
	return 0, false
}

// placesIn finds what is whole in the bytes of a file. like says what it is.
func placesIn(b []byte, seed uint64, last store.Pos, like Place) (all []Place) {
	for at := dataStart; at < len(b); {
		i := bytes.Index(b[at:], marker)
		if i < 0 {
			break
		}
		at += i
		p, ok := placeAt(b[at:], uint64(at), seed)
		if !ok || p.Pos > last {
			at++
			continue
		}
		p.Kind, p.File, p.Offset = like.Kind, like.File, int64(at)
		all = append(all, p)
		at += int(p.Size)
	}
	return all
}

func placeAt(b []byte, offset, seed uint64) (p Place, ok bool) {
	if len(b) < headSize || binary.LittleEndian.Uint64(b[40:]) != sum(seed^offset, b[:40]) {
		return Place{}, false
	}
	key := int(binary.LittleEndian.Uint16(b[6:]))
	body := headSize + key + int(binary.LittleEndian.Uint32(b[24:]))
	pos := binary.LittleEndian.Uint64(b[8:])
	if pos == 0 || len(b) < body+sumSize || binary.LittleEndian.Uint64(b[body:]) != sum(seed^pos, b[headSize:body]) {
		return Place{}, false
	}
	return Place{Pos: store.Pos(pos), Key: string(b[headSize : headSize+key]), Size: int64(body + sumSize)}, true
}

func sum(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}
