package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// record is the table's value for one environment, as JSON.
type record struct {
	Version     int     `json:"version"`
	Environment string  `json:"environment"`
	Project     string  `json:"project"`
	Current     *hashed `json:"current,omitempty"`
	Pending     *hashed `json:"pending,omitempty"`
	// Replaced ones have Until set; the newest is first.
	Replaced []hashed `json:"replaced,omitempty"`
}

func (r *record) environment() Environment { return Environment{r.Project, r.Environment} }

const (
	recordVersion = 1
	// maxReplaced bounds a record, whatever goes wrong with rotations.
	maxReplaced = 16
)

// hashed is a generated password after it was handed out.
//
// The hash is a plain SHA-256: right for these passwords, and wrong for a person's.
// Each has 256 random bits, so there is nothing to guess, and a slow hash would only
// make every push cost milliseconds.
type hashed struct {
	Hash     digest    `json:"hash"`
	LastFour string    `json:"last_four"`
	Created  time.Time `json:"created"`
	Until    time.Time `json:"until,omitzero"` // it is accepted before then; zero means for good
}

// digest is a SHA-256, in hex when encoded.
type digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(d)) {
		return errors.New("a hash has the wrong length")
	}
	_, err := hex.Decode(d[:], b)
	return err
}

// decodeRecord reads the value under the key of env.
func decodeRecord(value []byte) (record, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return record{}, fmt.Errorf("decode a credential record: %w", err)
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("decode a credential record: version %d is not known", r.Version)
	}
	return r, nil
}

// all yields every password of the record that may be accepted.
func (r *record) all(yield func(hashed) bool) {
	if r.Current != nil && !yield(*r.Current) || r.Pending != nil && !yield(*r.Pending) {
		return
	}
	for _, h := range r.Replaced {
		if !yield(h) {
			return
		}
	}
}

// knows reports whether a password of the record shows as lastFour.
func (r *record) knows(lastFour string) bool {
	for h := range r.all {
		if h.LastFour == lastFour {
			return true
		}
	}
	return false
}

// retire keeps h accepted until then, and no longer.
func (r *record) retire(h *hashed, until time.Time) {
	if h == nil {
		return
	}
	old := *h
	old.Until = until
	r.Replaced = slices.Insert(slices.Clone(r.Replaced), 0, old)
}

// prune forgets expired passwords.
func (r *record) prune(now time.Time) {
	r.Replaced = slices.DeleteFunc(slices.Clone(r.Replaced), func(h hashed) bool { return !now.Before(h.Until) })
	r.Replaced = r.Replaced[:min(len(r.Replaced), maxReplaced)]
}

// promote makes the password that ends with lastFour the current one, and reports whether
// there is one.
func (r *record) promote(lastFour string, until time.Time) bool {
	switch {
	case r.Current != nil && r.Current.LastFour == lastFour:
		return true
	case r.Pending != nil && r.Pending.LastFour == lastFour:
		r.retire(r.Current, until)
		r.Current, r.Pending = r.Pending, nil
		return true
	}
	i := slices.IndexFunc(r.Replaced, func(h hashed) bool { return h.LastFour == lastFour })
	if i < 0 {
		return false
	}
	back := r.Replaced[i]
	back.Until = time.Time{}
	r.Replaced = slices.Delete(slices.Clone(r.Replaced), i, i+1)
	r.retire(r.Current, until)
	r.Current = &back
	return true
}
