package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// SalvageDir is the folder of damaged bytes under the data directory.
const SalvageDir = "salvage"

// Layout describes the contents of the streams.
type Layout struct {
	// Events, DeadLetters and Quarantine are the journal's streams. The relay can keep no
	// event without them, so a start never moves them aside. Events holds the sinks'
	// positions, and the watermarks belong to it.
	Events, DeadLetters, Quarantine string
	// Sinks begins the name of each consumer with a sink's position.
	Sinks string
	// Count reads the number of events from a record's header.
	Count func(record []byte) uint64
	// Check reads a whole record of Events or DeadLetters, and counts its events.
	Check func(record []byte) (events int, err error)
	// Later returns an error for a record of a later version of the relay, and nil for
	// any other.
	Later func(record []byte) error
	// AdviceLater tells a person how to handle such records.
	AdviceLater string
}

// journal names the journal's streams.
func (l *Layout) journal() []string { return []string{l.Events, l.DeadLetters, l.Quarantine} }

// Dir is a data directory.
type Dir struct {
	path       string
	layout     Layout
	watermarks *Watermarks

	// The start's knowledge of the events' blocks; the starting goroutine's own.
	notes           *notes     // nil before the first start
	doubt           bool       // this start reads the noted blocks too
	trusted         []*trusted // blocks this start has not read
	unknownIsDamage bool       // see TakeUnknownForDamage
	restored        []string   // descriptions with a checksum from the copy
}

// New describes the data directory at path, and does not touch it. watermarks may be nil.
func New(path string, layout Layout, watermarks *Watermarks) *Dir {
	return &Dir{path: path, layout: layout, watermarks: watermarks}
}

// Streams lists the streams of a data directory.
func Streams(path string) ([]string, error) {
	entries, err := os.ReadDir(StreamDir(path, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	var names []string
	for _, e := range entries {
		// The server was deleting a stream with a dot before its name, and goes on.
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// StreamDir is the server's folder of a stream in a data directory.
func StreamDir(path, stream string) string {
	return filepath.Join(natsserver.StreamsDir(serverDir(path)), stream)
}

// serverDir is the server's folder.
func serverDir(path string) string { return filepath.Join(path, "jetstream") }

// streams lists the journal's streams, and then all others of the data directory: the
// trail, its checkpoints, the credentials, and future ones.
func (d *Dir) streams() ([]string, error) {
	found, err := Streams(d.path)
	all := d.layout.journal()
	for _, name := range found {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, err
}

func (d *Dir) streamDir(stream string) string { return StreamDir(d.path, stream) }

// relative is a path relative to the data directory.
func (d *Dir) relative(path string) string {
	if r, err := filepath.Rel(d.path, path); err == nil {
		return r
	}
	return path
}
