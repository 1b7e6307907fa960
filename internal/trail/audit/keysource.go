package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// KeySource says where the signing key is.
type KeySource struct {
	// Origin names the trail: a new key, and so the first line of each checkpoint. An
	// existing key keeps its name.
	Origin string
	// KeyFile holds the signing key in the note form. It is generated where it is
	// missing; if something was signed before, a new generation begins then. The newest
	// checkpoint is kept next to it, as KeyFile + ".checkpoint", so that a roll-back of both
	// logs is found too. Relays with the same logs share the key.
	KeyFile string
	// KeyEnv is the name of an environment variable with the key, in place of KeyFile.
	// SignCommand is a program in its place, which gets the environment variables SignEnv:
	// see signByCommand. PublicKey is its key, in the note form. Such keys are never generated.
	KeyEnv      string
	SignCommand []string
	SignEnv     []string
	PublicKey   string
	// PinFile keeps the newest checkpoint. Default KeyFile + ".checkpoint".
	PinFile string
}

// pinFile is where the newest checkpoint is kept.
func (o *KeySource) pinFile() string { return cmp.Or(o.PinFile, o.KeyFile+".checkpoint") }

// loadKey reads the key from its place. It gives fs.ErrNotExist where a file is missing.
func (o *KeySource) loadKey() (keyPair, error) {
	switch {
	case len(o.SignCommand) > 0:
		return newKeyPair(o.PublicKey, signByCommand(o.SignCommand, o.SignEnv))
	case o.KeyEnv != "":
		text, given := os.LookupEnv(o.KeyEnv)
		if !given {
			return keyPair{}, fmt.Errorf("there is no signing key: the environment variable %s is not set", o.KeyEnv)
		}
		return readKey(text)
	}
	return loadKey(o.KeyFile)
}

// markFile names the key once it has signed, if the key's own file cannot.
func (o *KeySource) markFile() string {
	return strings.TrimSuffix(o.pinFile(), ".checkpoint") + ".signed"
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
	t.key, t.marked = key, isMarked(key, t.options.markFile())
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
