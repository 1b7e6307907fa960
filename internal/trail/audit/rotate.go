package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// A key is replaced in four steps:
//
//  1. The new key is kept next to the old one, as KEY.next.
//  2. An entry under the old key names the new one: see [Trail.NameNextKey].
//  3. A checkpoint under the old key covers this entry, and is pinned.
//  4. The new key takes the old one's place, which is gone then: it is of no use except to
//     forge the past.
//
// A crash between two of them leaves the old key in its place, and the trail goes on under
// it; the rotation, begun again, takes up KEY.next. The next start after the last step
// begins a generation under the new key. So whoever trusts the first public key follows
// the chain to the newest: see [Generation].
//
// [Trail.Rotate] does all of it, and begins the generation at once. Of a stopped relay, a command
// opens the trail for it.

// TypeRotated names the key of the next generation; its Detail is a [Rotation].
const TypeRotated = "trail.key_rotated"

// wasRotated is why a generation begins under a key that the one before has named.
const wasRotated = "the signing key was rotated"

// Rotation is the Detail of TypeRotated.
type Rotation struct {
	// Key is the new public key, in the note form, Previous the old one.
	Key      string `json:"key"`
	Previous string `json:"previous"`
	// Person asked for it.
	Person Person `json:"person,omitzero"`
}

// GenerateKey makes a key named origin in a new file, and returns its public key in the
// note form. An existing file is left alone.
func GenerateKey(file, origin string) (public string, err error) {
	key, err := generateKey(file, origin)
	return key.public, err
}

// PublicKey is the public key, in the note form, of a PEM file with an Ed25519 public key
// (SubjectPublicKeyInfo, as openssl pkey -pubout writes it).
func PublicKey(origin string, pemFile []byte) (string, error) {
	block, _ := pem.Decode(pemFile)
	if block == nil || block.Type != "PUBLIC KEY" {
		return "", errors.New("read public key: there is no PEM block PUBLIC KEY; 'openssl pkey -pubout' writes one")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read public key: %w", err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return "", errors.New("read public key: it is not an Ed25519 key")
	}
	public, err := note.NewEd25519VerifierKey(origin, key)
	if err == nil {
		_, err = note.NewVerifier(public) // checks the name
	}
	if err != nil {
		return "", fmt.Errorf("name public key: %w", err)
	}
	return public, nil
}

// nextFile keeps the new key until it takes the old one's place.
func nextFile(keyFile string) string { return keyFile + ".next" }

// nextKey is the public key of the prepared key next to keyFile. It is made where it is
// missing, with the same name.
func nextKey(keyFile string) (public string, err error) {
	next, err := loadKey(nextFile(keyFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return next.public, err // of an unfinished rotation
	}
	old, err := loadKey(keyFile)
	if err != nil {
		return "", err
	}
	next, err = generateKey(nextFile(keyFile), old.Name())
	return next.public, err
}

// useNextKey puts the new key into the place of the old one. A crash leaves the one or
// the other, whole.
func useNextKey(keyFile string) error {
	if err := os.Rename(nextFile(keyFile), keyFile); err != nil {
		return fmt.Errorf("replace signing key: %w", err)
	}
	return durable.SyncDir(filepath.Dir(keyFile))
}

// NameNextKey has the trail's key sign for its successor: it appends an entry with the
// successor's public key in the note form, and returns once a checkpoint next to the key
// covers it. The entry says who asked for it. A crash before leaves at most an entry: it names the key to follow, and the
// old one goes on.
func (t *Trail) NameNextKey(ctx context.Context, public string, by Person) error {
	if tlogproof.NameOf(public) == "" {
		return errors.New("name next key: it is not in the note form NAME+HASH+KEY")
	}
	if err := t.use(ctx); err != nil {
		return fmt.Errorf("name next key: %w", err)
	}
	defer t.unlock()
	if t.key.isOwn(public) {
		return errors.New("name next key: it is the signing key already")
	}
	return t.nameLast(ctx, public, by)
}

// cosignPatience is how long a rotation waits for the witnesses' signatures.
const cosignPatience = 15 * time.Second

// Shared reports whether other relays sign this trail with the same key. They have to be stopped
// while it is rotated.
func (t *Trail) Shared() bool { return t.options.Shared }

// Rotate replaces the key in its file by a new one, and has the trail go on under it. It
// returns the new public key, in the note form. Appends wait while the trail is read back for
// the new generation. An error before the key is in its place leaves the old one in use, and
// the rotation can be begun again; see above for a crash. Of two calls at once, the later one
// replaces the key of the earlier.
//
// The entry that names the new key is the last one under the old key, so that who has a copy of
// the trail notices when the new generation is missing from it. First the witnesses get some
// time to sign a checkpoint with this entry: later they are only asked about the new
// generation. If other entries come meanwhile, another entry names the key again.
func (t *Trail) Rotate(ctx context.Context, by Person) (public string, err error) {
	if t.options.KeyFile == "" {
		return "", errors.New("rotate key: the key is not in a file; make the new one yourself, and have the trail name its public key")
	}
	t.rotating.Lock()
	defer t.rotating.Unlock()
	public, err = nextKey(t.options.KeyFile) // after a crash here the next rotation takes it up
	if err != nil {
		return "", err
	}
	if err := t.NameNextKey(ctx, public, by); err != nil {
		return "", err
	}
	t.waitForWitnesses(ctx, t.Size())
	if err := t.use(ctx); err != nil {
		return "", err
	}
	defer t.unlock()
	if err := t.nameLast(ctx, public, by); err != nil {
		return "", err
	}
	if err := useNextKey(t.options.KeyFile); err != nil {
		// Perhaps the new key is in its place, and a power cut may still undo that. So nothing
		// is signed with it in this process; the next start goes by what it finds there.
		return "", err
	}
	key, err := t.options.loadKey()
	if err == nil && key.public != public {
		err = fmt.Errorf("rotate key: somebody has put another key into %s", t.options.KeyFile)
	}
	if err != nil {
		return "", err
	}
	t.useKey(key)
	t.keyLoss = wasRotated // even if the entry that says so cannot be read any more
	if err := t.attempt(ctx, t.restore); err != nil {
		return "", fmt.Errorf("the key is replaced by %s, and the trail goes on under it as soon as it can be used: %w", public, err)
	}
	return t.key.public, nil
}

// waitForWitnesses waits until they have signed so many entries, or have had their time.
func (t *Trail) waitForWitnesses(ctx context.Context, entries int64) {
	if !t.witnessed.Load() {
		return
	}
	for end := time.Now().Add(cosignPatience); t.cosigned.Load() < entries && time.Now().Before(end); {
		if retry.Sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// nameLast has the newest entry name a successor's key, and signs and pins all entries. It
// keeps the turn meanwhile: else appends that never rest would keep it from an end.
func (t *Trail) nameLast(ctx context.Context, public string, by Person) error {
	named, newest := rotations{}, t.next()-1
	if newest >= t.base {
		last, err := t.Get(ctx, newest)
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrMissing) {
			return err
		}
		named.take(&last.Entry)
	}
	if named[newest] != public {
		if err := t.appendOwn(ctx, TypeRotated, Rotation{Key: public, Previous: t.key.public, Person: by}); err != nil {
			return err
		}
	}
	for {
		d, err := t.draft(false)
		if err != nil || d == nil {
			return err
		}
		if err = d.sign(ctx); err == nil {
			err = t.keepSigned(ctx, d)
		}
		if err != nil {
			return err
		}
	}
}

// rotations are the keys named by entries about rotations, by index.
type rotations map[int64]string

func (r rotations) take(e *Entry) {
	if key := NextKey(e); key != "" {
		r[e.Index] = key
	}
}

// NextKey is the key that an entry names for the next generation; "" for none.
func NextKey(e *Entry) string {
	var named Rotation
	if e.Type != TypeRotated || json.Unmarshal(e.Detail, &named) != nil {
		return ""
	}
	return named.Key
}

// to reports whether a signed, sound entry of a generation names a key.
func (r rotations) to(public string, g Generation, damaged []span) bool {
	for index, key := range r {
		if index >= g.Base && index < g.Base+g.Size && !contains(damaged, index) && tlogproof.SamePublicKey(key, public) {
			return true
		}
	}
	return false
}

// endorse marks the generations whose key is the one before's, or named by it.
func (x *examination) endorse() {
	damaged := unsound(x.report.Problems)
	for i := 1; i < len(x.gens); i++ {
		g, before := &x.gens[i], x.gens[i-1]
		g.Endorsed = tlogproof.SamePublicKey(g.PublicKey, before.PublicKey) || x.rotations.to(g.PublicKey, before, damaged)
	}
}
