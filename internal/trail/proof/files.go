package proof

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	// FilesDir is the folder with the files of all logs, in a data directory.
	FilesDir = "tlog"
	// CheckpointFile has the newest signed note of a log.
	CheckpointFile = "checkpoint"
	// HistoryFile has all its checkpoints, as JSON lines: see [Line].
	HistoryFile = "checkpoints"
)

// Line is one line of [HistoryFile].
type Line struct {
	// Seq numbers the trail's checkpoints, over all generations, from 1.
	Seq uint64 `json:"seq"`
	// Key is the public key of its signature, in the note form.
	Key string `json:"key"`
	// Checkpoint is the signed note, verbatim.
	Checkpoint string `json:"checkpoint"`
}

// ParseLine reads a line, with its end, in the one spelling of the relay. It checks no signature.
func ParseLine(text []byte) (l Line, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return Line{}, fmt.Errorf("it is not JSON: %w", err)
	}
	if spelled, err := json.Marshal(l); err != nil || l.Seq == 0 || string(spelled)+"\n" != string(text) {
		return Line{}, errors.New("it is not as the relay writes it")
	}
	return l, nil
}

// PlainlySpelled reports whether each signature has the one spelling that encoders give it: the
// last character of base64 has bits that decoders ignore.
func PlainlySpelled(note string) bool {
	_, signatures, _ := strings.Cut(note, "\n\n")
	for line := range strings.Lines(signatures) {
		text := strings.TrimSuffix(line[strings.LastIndexByte(line, ' ')+1:], "\n")
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil {
			return false
		}
	}
	return true
}

// TypeArchived is the type of the trail's entries about archives; their Detail is an
// [Archived].
const TypeArchived = "trail.archived"

// Archived is a run of one log's entries in an archive.
type Archived struct {
	// Origin names the log.
	Origin string `json:"origin"`
	// From and To are the first and the last entry, by index over all generations.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Size is the tree with these entries and all before them in the log; Root is its hash.
	Size int64     `json:"tree_size"`
	Root tlog.Hash `json:"tree_root"`
	// Where is the archive's folder, on the relay's machine.
	Where string `json:"where"`
	// All of them were made before the time Before.
	Before time.Time `json:"before"`
	// Files and Bytes count the moved files. Bundles with entries of the trail about itself are
	// copied, and stay.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// InDetail reports whether the detail of an entry is about the same archive.
func (a Archived) InDetail(detail json.RawMessage) bool {
	var old Archived
	return json.Unmarshal(detail, &old) == nil && old.Origin == a.Origin && old.Size == a.Size && old.Where == a.Where
}
