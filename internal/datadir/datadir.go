package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// SalvageDir is the folder under the data directory where damaged bytes are kept.
const SalvageDir = "salvage"

// lockPatience is how long a start waits for another process to let go of the
// data directory.
const lockPatience = time.Second

// Layout says what the streams hold of which the room cannot tell by itself.
type Layout struct {
	// Events, DeadLetters and Quarantine are the journal's streams. Without them no
	// event can be kept, so none of them is ever moved aside. Sinks have their
	// positions in Events, and the watermarks are of that stream.
	Events, DeadLetters, Quarantine string
	// Sinks is what the names of consumers that are a sink's position begin with.
	Sinks string
	// Count tells from a record's header how many events it holds.
	Count func(record []byte) uint64
	// Check reads a whole record of Events or DeadLetters, and counts its events.
	Check func(record []byte) (events int, err error)
	// Later returns an error for a record that a later version of the relay wrote,
	// and nil for any other.
	Later func(record []byte) error
	// AdviceLater says what to do about those.
	AdviceLater string
}

// journal names the journal's streams.
func (l *Layout) journal() []string { return []string{l.Events, l.DeadLetters, l.Quarantine} }

// Dir is a data directory.
type Dir struct {
	path   string
	layout Layout
	marks  *Watermarks

	// What a start knows of the events' blocks; the starting goroutine's own.
	notes           *notes     // nil before it
	doubt           bool       // this start reads the noted blocks too
	trusted         []*trusted // that it has not read
	unknownIsDamage bool       // see TakeUnknownForDamage
}

// New describes the data directory at path. It touches nothing. marks may be nil.
func New(path string, layout Layout, marks *Watermarks) *Dir {
	return &Dir{path: path, layout: layout, marks: marks}
}

// Streams names the streams that a data directory holds.
func Streams(path string) ([]string, error) {
	entries, err := os.ReadDir(StreamDir(path, ""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	var names []string
	for _, e := range entries {
		// The server removes what begins with a dot: a stream that it was deleting.
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// StreamDir is the folder in which the server keeps a stream of a data directory.
func StreamDir(path, stream string) string {
	return filepath.Join(natsserver.StreamsDir(serverDir(path)), stream)
}

// serverDir is the folder that belongs to the server.
func serverDir(path string) string { return filepath.Join(path, "jetstream") }

// streams names the journal's streams, and then whatever else the data directory
// holds: the trail, its checkpoints, the credentials, and streams of tomorrow.
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

// relative is a path as seen from the data directory.
func (d *Dir) relative(path string) string {
	if r, err := filepath.Rel(d.path, path); err == nil {
		return r
	}
	return path
}

// Lock keeps a second process off a data directory: two servers on the same
// files would corrupt them. The kernel frees the lock when the process dies.
func Lock(path string) (*os.File, error) {
	path = filepath.Join(path, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	// A process that is ending, or a child of ours that is being started, may
	// have it for a moment longer.
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("lock %s: another process uses this data directory: %w", path, err), f.Close())
		}
	}
}

// LockOffline is [Lock] for a command that needs a relay to be stopped.
func LockOffline(path string) (*os.File, error) {
	lock, err := Lock(path)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("a relay is running on %s: stop it first, or ask it (/status, /metrics); nothing was read", path)
	}
	return lock, err
}
