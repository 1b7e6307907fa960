package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// The pin is the newest checkpoint, kept next to the key. It shows a roll-back of both logs.
// The mark proves that the key has signed before: without it, a key whose pin and logs were
// deleted would look new.
//
// The first checkpoint of a key is pinned before it is published, every later one after
// that. So a kept checkpoint without a pin is never the work of a crash. The mark
// follows when the first checkpoint is durable; a crash before it leaves the pin, and
// the next start marks.

// pinFirst pins the first checkpoint of a key before it leaves. A crash after it
// leaves a pin of unpublished, durable entries; the next start signs them again.
func (t *Trail) pinFirst(signed []byte) error {
	if t.marked {
		return nil
	}
	return writePin(t.options.pinFile(), signed)
}

// keepPin pins the newest checkpoint where an older one is pinned, and marks the key. A
// crash before it leaves a pin older by one checkpoint. Where it fails it is tried
// again, and signing goes on: see checkPin. Needs the turn.
func (t *Trail) keepPin() error {
	if !t.pinDue || t.newestNote == nil {
		return nil
	}
	if err := writePin(t.options.pinFile(), t.newestNote); err != nil {
		return err
	}
	if !t.marked {
		if err := markKey(*t.fileKey.Load(), t.options.KeyFile, t.options.markFile()); err != nil {
			return err
		}
	}
	t.marked, t.pinDue = true, false
	return nil
}

func writePin(file string, signed []byte) error {
	if err := durable.WriteFile(file, signed); err != nil {
		return fmt.Errorf("keep newest checkpoint next to the key: %w", err)
	}
	return nil
}

// markKey notes a key's first signature durably: in its file if this is a private file of
// the relay's own, else in a file next to the pin. Both writes replace a file whole.
func markKey(key keyPair, keyFile, markFile string) error {
	info, err := os.Lstat(keyFile)
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 == 0 {
		text, err := durable.ReadFile(keyFile)
		if err == nil && durable.WriteFile(keyFile, append([]byte(signedMark+"\n"), text...)) == nil {
			return nil
		}
	}
	if err := durable.WriteFile(markFile, []byte(key.public+"\n")); err != nil {
		return fmt.Errorf("note next to the key that it has signed: %w", err)
	}
	return nil
}

// hasWritten reports whether this relay may have written the trail before: of several relays with
// one key, one that never has lacks the checkpoint next to it.
func (t *Trail) hasWritten() bool {
	if !t.options.Shared {
		return true
	}
	_, err := os.Stat(t.options.ForwardedFile)
	return !errors.Is(err, fs.ErrNotExist)
}

// isMarked reports whether a key is known to have signed. An unreadable note counts for
// every key.
func isMarked(key keyPair, markFile string) bool {
	text, err := durable.ReadFile(markFile)
	if errors.Is(err, fs.ErrNotExist) {
		return key.marked
	}
	named := strings.TrimSpace(string(text))
	return key.marked || tlogproof.NameOf(named) == "" || key.isOwn(named)
}

// checkPin holds the pin against the history: a roll-back of both logs leaves it
// ahead of them, and an older copy put in its place is older than they are.
func (x *examination) checkPin() {
	own, newer := x.ownHistory()
	switch {
	case x.pinText == nil && x.pinExpected && (own > 0 || x.marked):
		x.problem("pin", 0, 0, "the checkpoint next to the key (%s) is missing, though the key has signed; the kept checkpoints under it are %d, and what they cover may be an older copy of the trail",
			filepath.Base(x.options.pinFile()), own)
	case x.pin == nil: // it is no pin, and is named, or there is none yet
	case x.still && newer > 1:
		x.problem("pin", 0, 0, "the checkpoint next to the key covers %d entries of its tree and is older than the newest %d kept ones: an older copy was put in its place, or newer ones could not be written",
			x.pin.Size, newer)
	case x.pinCounts():
		x.comparePin()
	}
}

// ownHistory counts the kept checkpoints under the key, the same tree signed again left out, and how
// many of them are newer than the pin.
func (x *examination) ownHistory() (own, newer int) {
	var last Kept
	for _, c := range x.history {
		if !x.key.isOwn(c.PublicKey) || own > 0 && last.Base == c.Base && last.Size == c.Size {
			continue
		}
		own, last = own+1, c
		if x.pin != nil && cmp.Or(cmp.Compare(c.Base, x.pin.Base), cmp.Compare(c.Size, x.pin.Size)) > 0 {
			newer++
		}
	}
	return own, newer
}

// isOfTheEntries reports whether a checkpoint's root is the root over the entries as they
// are. Two relays with one trail sign at different sizes, and only one of both is kept:
// the other's first pin is unpublished, and no less true.
func (x *examination) isOfTheEntries(c Kept) bool {
	end := c.Base + c.Size
	return end <= int64(len(x.leaves)) && tree{}.With(x.leaves[c.Base:end]...).Root() == c.Root
}

// pinCounts reports whether the pin covers anything that may have been published. Before a key is
// marked, a crash or a refusal may have left its first checkpoint as the pin only: the entries are
// signed again then.
func (x *examination) pinCounts() bool {
	return x.pin != nil && x.pin.Size > 0 && (x.marked || !x.isOfTheEntries(*x.pin))
}

// comparePin names a pin ahead of the kept checkpoints, or unlike them.
func (x *examination) comparePin() {
	n, same := int64(-1), false
	for _, c := range x.history {
		if c.Base == x.pin.Base {
			n = max(n, c.Size)
			same = same || c.Size == x.pin.Size && c.Root == x.pin.Root
		}
	}
	base := x.pin.Base
	switch {
	case x.pin.Size > n && int64(len(x.leaves)) < base+x.pin.Size:
		x.problem("truncated", base+max(n, 0), base+x.pin.Size-1, "the checkpoint next to the key covers %d entries, the kept ones %d", x.pin.Size, max(n, 0))
	case x.pin.Size > n:
		x.problem("pin", 0, 0, "the checkpoint next to the key covers %d entries, the kept ones only %d", x.pin.Size, max(n, 0))
	case !same && !x.isOfTheEntries(*x.pin):
		x.problem("pin", 0, 0, "the checkpoint next to the key is not among the kept ones")
	}
}
