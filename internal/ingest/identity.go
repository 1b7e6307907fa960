package ingest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/wire"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	typePrefix = "event_log"
	hashPrefix = "hmac-" // names the method; earlier versions made "sha256-", without a key
	hashBytes  = 16      // of the digest, as hex in an ID
	maxAction  = 128     // bytes
)

// ids makes the id and the type of an entry.
type ids struct {
	wanted [2]jsontext.Wanted
	digest hash.Hash
	sum    [sha256.Size]byte
	id     []byte // an ordinal first, then the id, if it is a hash
	head   []byte
	typ    []byte
}

func newIDs(key secret.Text) ids {
	return ids{
		wanted: [2]jsontext.Wanted{{Quoted: `"event_id"`}, {Quoted: `"action"`}},
		digest: hmac.New(sha256.New, []byte(key.Reveal())), typ: append([]byte(nil), typePrefix...),
	}
}

// identify sets the event's ID and type: the body's own event_id and action, if there.
func (x *ids) identify(e *record.Entry, source string, isObject bool) {
	if isObject {
		jsontext.Lookup(e.Body, x.wanted[:])
	} else {
		x.wanted[0].Value, x.wanted[1].Value = jsontext.Raw{}, jsontext.Raw{}
	}
	x.typ = x.typ[:len(typePrefix)]
	if action := x.wanted[1].Value; isToken(action, maxAction) {
		x.typ = append(append(x.typ, '.'), action.Bytes...)
	}
	e.Type = x.typ
	if id := x.wanted[0].Value; isVisible(id, wire.MaxEventID) {
		e.ID = id.Bytes
		return
	}
	e.ID = x.hashID(e, source)
}

// hashID makes an ID of the source, the time and the body. It is an HMAC-SHA256, because
// redaction may hide parts of the body from a sink, and not the ID. An ordinal in x.id
// tells apart events equal in all three.
func (x *ids) hashID(e *record.Entry, source string) []byte {
	var frame [16]byte // keeps the parts apart
	binary.LittleEndian.PutUint64(frame[:8], uint64(len(source)))
	binary.LittleEndian.PutUint64(frame[8:], uint64(e.Time)) //nolint:gosec // its bits
	x.digest.Reset()
	x.head = append(append(x.head[:0], frame[:]...), source...)
	x.digest.Write(x.head)
	x.digest.Write(e.Body)
	x.digest.Write(x.id)
	sum := x.digest.Sum(x.sum[:0])
	x.id = hex.AppendEncode(append(x.id[:0], hashPrefix...), sum[:hashBytes])
	return x.id
}

func appendOrdinal(dst []byte, n int) []byte {
	return binary.LittleEndian.AppendUint64(dst, uint64(n)) //nolint:gosec // a count
}

// isVisible reports whether s is 1 to most visible ASCII characters, and so fits into any
// destination's header. A string with escapes is not.
func isVisible(s jsontext.Raw, most int) bool {
	if s.Escaped || !s.ASCII || len(s.Bytes) == 0 || len(s.Bytes) > most {
		return false
	}
	for _, c := range s.Bytes {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// isToken reports whether s is 1 to most letters, digits, "_", "-", "." or ":".
func isToken(s jsontext.Raw, most int) bool {
	if s.Escaped || len(s.Bytes) == 0 || len(s.Bytes) > most {
		return false
	}
	for _, c := range s.Bytes {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}

// Sample is the event that a push of body to env makes, with the time now and no labels. For
// a body without an id of its own, the id differs from a running relay's: this key is public.
func Sample(env credentials.Environment, body []byte, now time.Time) relay.Event {
	source := relay.SourceOf(env.Project, env.Environment)
	e := record.Entry{Time: now.UnixNano(), Body: body}
	kind := record.ContentType(body)
	x := newIDs(secret.New("a sample"))
	x.identify(&e, source, kind == record.ContentJSON)
	return relay.Event{
		ID: string(e.ID), Source: source, Type: string(e.Type), Time: now, Received: now, ContentType: kind,
		Project: env.Project, Environment: env.Environment, Body: body,
	}
}

const (
	idKeyName  = "key/event-id"
	idKeyBytes = 32
	idKeyTries = 50
	// idKeyPause is the wait between two tries, after another relay was first.
	idKeyPause = 200 * time.Millisecond
)

// OpenIDKey reads the key of the hashes for events without an id of their own, or makes
// one. Without a key, a hash would confirm a guess of the redacted parts of a body.
//
// Every relay with the same store has the same key. If none can be read or kept, it returns
// one for this process alone. Then events that are pushed again are stored again, and
// nothing worse happens.
//
// A crash after the key is made and before it is kept loses no event's id: ingest begins
// later.
func OpenIDKey(ctx context.Context, table store.Table, log *slog.Logger) secret.Text {
	key, err := keepIDKey(ctx, table, log)
	if err != nil {
		key = newIDKey()
		log.Error("the key of event ids cannot be read; events without an id get one by a key of this process, and are stored again when they are pushed again after its end", "error", err)
	}
	return secret.New(string(key))
}

// keepIDKey reads the key from the table, or makes one there. Of several relays at the same
// time the first wins.
func keepIDKey(ctx context.Context, table store.Table, log *slog.Logger) ([]byte, error) {
	for try := 1; ; try++ {
		v, err := table.Get(ctx, idKeyName)
		if err != nil {
			return nil, fmt.Errorf("read the key of event ids: %w", err)
		}
		if len(v.Data) == idKeyBytes {
			return v.Data, nil
		}
		key := newIDKey()
		_, err = table.Put(ctx, idKeyName, key, store.If{Key: idKeyName, Rev: v.Rev})
		switch lost := v.Doubtful || v.Data != nil; {
		case err == nil && lost:
			log.Warn("the key of event ids was lost or damaged, and a new one is made: events without an id that were pushed before are not recognised when they are pushed again")
			return key, nil
		case err == nil:
			log.Info("made the key for ids of events without one, as at a first start")
			return key, nil
		}
		if !errors.Is(err, store.ErrConflict) || try == idKeyTries {
			return nil, fmt.Errorf("keep the key of event ids: %w", err)
		}
		if err := retry.Sleep(ctx, idKeyPause); err != nil {
			return nil, err
		}
	}
}

func newIDKey() []byte {
	key := make([]byte, idKeyBytes)
	_, _ = rand.Read(key) // never fails
	return key
}
