package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// errNoKey: the key's place holds none.
var errNoKey = errors.New("there is no signing key")

// pinFile is where the newest checkpoint is kept.
func (o *Options) pinFile() string { return cmp.Or(o.PinFile, o.KeyFile+".checkpoint") }

// loadKey reads the key from its place. It gives fs.ErrNotExist where a file is missing.
func (o *Options) loadKey() (keyPair, error) {
	switch {
	case len(o.SignCommand) > 0:
		return newKeyPair(o.PublicKey, signByCommand(o.SignCommand, o.SignEnv))
	case o.KeyEnv != "":
		text, given := os.LookupEnv(o.KeyEnv)
		if !given {
			return keyPair{}, fmt.Errorf("%w: the environment variable %s is not set", errNoKey, o.KeyEnv)
		}
		return readKey(text)
	}
	return loadKey(o.KeyFile)
}

// openKey loads the key, or generates it in its file. A damaged file is kept in the
// salvage folder; one without permission to read is not replaced, and a key elsewhere
// never is.
func (t *Trail) openKey() error {
	key, err := t.options.loadKey()
	if t.options.KeyFile != "" {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.keyLoss = "the signing key is gone"
		case errors.Is(err, errKeyForm):
			t.keyLoss = "the signing key was damaged"
			if err := t.setKeyAside(); err != nil {
				return err
			}
		}
	}
	if t.keyLoss != "" {
		t.newKey = true
		key, err = generateKey(t.options.KeyFile, t.options.Origin)
	}
	if err != nil {
		return err
	}
	if key.Name() != t.options.Origin {
		t.log.Warn("the audit trail keeps the origin of its key", "origin", key.Name(), "configured", t.options.Origin)
	}
	t.useKey(key)
	return nil
}

// useKey makes a key from its place the trail's. Needs the turn, or nobody else who knows of t.
func (t *Trail) useKey(key keyPair) {
	t.fileKey.Store(&key)
	t.key, t.marked = key, isMarked(key, t.markFile())
}

func (t *Trail) setKeyAside() error {
	text, err := durable.ReadFile(t.options.KeyFile)
	if err := errors.Join(err, t.salvage(t.options.KeyFile, text)); err != nil {
		return err
	}
	// After a crash here the next start finds no key.
	if err := os.Remove(t.options.KeyFile); err != nil {
		return fmt.Errorf("replace damaged signing key: %w", err)
	}
	return nil
}
