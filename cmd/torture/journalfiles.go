package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/klauspost/compress/s2"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
)

const eventsStream = "AUDITRELAY_EVENTS"

// streamDir is where the relay's embedded server keeps the events.
func (s *scene) streamDir() string {
	return filepath.Join(s.dataDir, "jetstream", "jetstream", "$G", "streams", eventsStream)
}

// placed is a record in a file of the journal.
type placed struct {
	path         string
	offset, size int
	position     uint64
	data         []byte
}

// records reads where each record stands, while no relay runs. Earlier damage is passed
// over.
func (s *scene) records() (all []placed, err error) {
	paths, err := blockfile.List(s.streamDir())
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		b, err := blockfile.Read(eventsStream, path)
		if err != nil {
			return nil, err
		}
		for _, f := range b.Frames(0) {
			if f.Kind == blockfile.Message {
				all = append(all, placed{path, f.Offset, f.Size, f.Seq, f.Data})
			}
		}
	}
	return all, nil
}

// ids returns the ids of the record's events. It looks for them in the text, and so does
// not rest on the decoder under test.
func (p *placed) ids() (ids []string, err error) {
	const header = 24 // of a record, before its S2 block
	if len(p.data) < header {
		return nil, fmt.Errorf("the record at position %d has %d bytes", p.position, len(p.data))
	}
	text, err := s2.Decode(nil, p.data[header:])
	if err != nil {
		return nil, fmt.Errorf("decompress the record at position %d: %w", p.position, err)
	}
	before := []byte(`"event_id":"`)
	for {
		_, rest, found := bytes.Cut(text, before)
		if !found {
			return ids, nil
		}
		id, rest, _ := bytes.Cut(rest, []byte{'"'})
		ids, text = append(ids, string(id)), rest
	}
}
