package witness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// logState is the witness's state of one origin.
type logState struct {
	Origin string `json:"origin"`
	// Checkpoint is the newest one that was cosigned, with the signatures of its log and of
	// this witness; the latter proves the state at the next start.
	Checkpoint string `json:"checkpoint"`
	// ClosedBy is the origin of a later generation of the same log. Nothing is cosigned
	// here any more.
	ClosedBy string `json:"closed_by,omitempty"`

	read proof.Checkpoint // Checkpoint's
}

// stateFile is the form of the file.
type stateFile struct {
	// Witness is the public key, so that the state of one witness is not taken for another's.
	Witness string     `json:"witness"`
	Logs    []logState `json:"logs"`
}

// states are the known logs, by origin.
type states map[string]logState

// ErrNoState marks a witness without its state: it may have cosigned any size of any log.
var ErrNoState = errors.New("the witness's state is gone")

// Create makes the state of a new witness, of no logs. It refuses to replace one, since with an
// older state a witness would cosign another history than before.
func Create(file string, key Key) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create witness state: %s exists", file)
	}
	return states{}.write(file, key)
}

// readStates reads the file. Each checkpoint must have the witness's own signature, so that a
// flipped bit is an error, and never another size.
func readStates(file string, key Key) (states, error) {
	data, err := durable.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist; see 'auditrelay witness recover --help'", ErrNoState, file)
	}
	if err != nil {
		return nil, fmt.Errorf("read witness state: %w", err)
	}
	var f stateFile
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields() // a damaged name must not look like a missing log
	if err := strict.Decode(&f); err != nil {
		return nil, fmt.Errorf("read witness state %s: %w", file, err)
	}
	if f.Logs == nil {
		return nil, fmt.Errorf("read witness state %s: the list of logs is missing", file)
	}
	if f.Witness != key.public {
		return nil, fmt.Errorf("read witness state %s: it is of the witness %s, and the key is of %s", file, f.Witness, key.public)
	}
	all := states{}
	for _, s := range f.Logs {
		if s.read, err = openOwn(key, s.Checkpoint); err == nil && s.read.Origin != s.Origin {
			err = fmt.Errorf("the checkpoint is of the origin %q", s.read.Origin)
		}
		if err != nil {
			return nil, fmt.Errorf("read witness state %s: %s: %w", file, s.Origin, err)
		}
		all[s.Origin] = s
	}
	return all, nil
}

// openOwn reads a checkpoint with the witness's own cosignature.
func openOwn(key Key, text string) (proof.Checkpoint, error) {
	n, err := note.Open([]byte(text), note.VerifierList(key.signer.Verifier()))
	if err != nil {
		return proof.Checkpoint{}, fmt.Errorf("check this witness's signature: %w", err)
	}
	return proof.ParseCheckpoint(n.Text)
}

// write makes the states durable. A crash leaves the old file or the new one. After an error
// either may be there; no signature of the new state has been sent yet.
func (s states) write(file string, key Key) error {
	f := stateFile{Witness: key.public, Logs: []logState{}}
	for _, origin := range slices.Sorted(maps.Keys(s)) {
		f.Logs = append(f.Logs, s[origin])
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encode witness state: %w", err)
	}
	if err := durable.WriteFile(file, append(data, '\n')); err != nil {
		return fmt.Errorf("keep witness state: %w", err)
	}
	return nil
}

// Recover makes lost state again from checkpoints with this witness's own signature, as the
// logs serve them. Of one log the largest counts. The holder of a log's key may have had a
// larger one cosigned than is shown here, so give it the newest copies of independent readers
// too. State that exists only moves forward.
func Recover(file string, key Key, checkpoints []string) error {
	all, err := readStates(file, key)
	if errors.Is(err, ErrNoState) {
		all, err = states{}, nil
	}
	if err != nil {
		return err
	}
	for _, text := range checkpoints {
		c, err := openOwn(key, text)
		if err != nil {
			return fmt.Errorf("recover witness state: %w", err)
		}
		known, found := all[c.Origin]
		switch {
		case found && known.read.Size == c.Size && known.read.Root != c.Root:
			return fmt.Errorf("recover witness state: this witness cosigned two trees of the size %d of %s: somebody else has its key, or its state was set back", c.Size, c.Origin)
		case !found || known.read.Size < c.Size:
			all[c.Origin] = logState{Origin: c.Origin, Checkpoint: text, ClosedBy: known.ClosedBy, read: c}
		}
	}
	return all.write(file, key)
}
