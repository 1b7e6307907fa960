package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
)

// leastWindow is the server's shortest duplicate window, in a description of a stream.
const leastWindow = `"duplicate_window":100000000`

var windowField = regexp.MustCompile(`"duplicate_window":[0-9]+`)

// forgetMessageIDs shortens the duplicate window in the description of a stream. At its
// start the server reads every record within the window for its message id: seconds of
// full load. No process repeats a publish of an earlier one, so those ids are of no use.
// The journal sets the window again as it opens the stream.
//
// The description and its checksum are two files. The copy of both is written first:
// after a crash between the two, [Dir.mendDescription] completes the pair by it.
func (d *Dir) forgetMessageIDs(stream string) error {
	dir := d.streamDir(stream)
	sound, err := blockfile.Described(stream, dir)
	if err != nil || !sound {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, natsserver.Description))
	if err != nil {
		return fmt.Errorf("read description: %w", err)
	}
	shorter := windowField.ReplaceAll(text, []byte(leastWindow))
	if bytes.Equal(shorter, text) {
		return nil
	}
	kept := d.descriptionCopy(stream)
	if err := keepFile(filepath.Join(kept, natsserver.Description), shorter); err != nil {
		return err
	}
	if err := keepFile(filepath.Join(kept, natsserver.DescriptionSum), blockfile.DescriptionSum(stream, shorter)); err != nil {
		return err
	}
	return copyDescription(kept, dir)
}

// halfCopied reports whether the text of a description equals the sound copy's, and only
// its checksum is another text's, as after a crash between the two files.
func halfCopied(dir, kept string) bool {
	if err := blockfile.Regular(filepath.Join(dir, natsserver.DescriptionSum)); errors.Is(err, blockfile.ErrUnreadable) {
		return false
	}
	text, err := os.ReadFile(filepath.Join(dir, natsserver.Description))
	if err != nil {
		return false
	}
	whole, err := os.ReadFile(filepath.Join(kept, natsserver.Description))
	return err == nil && bytes.Equal(text, whole)
}
