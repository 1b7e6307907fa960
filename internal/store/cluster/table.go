package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
)

// Table is one stream with a subject for each key. A revision is a sequence of
// that stream, plus what the cluster lost of it.
type Table struct {
	store  *Store
	stream string
	handle jetstream.Stream

	turn      chan struct{} // held by whoever writes a lazy value
	unwritten chan struct{} // takes a value when lazy values are to be written

	mu     sync.Mutex
	lazy   map[string]*lazyValue // by subject; guarded by mu
	newest map[string]uint64     // known revisions of values that may be guards, by subject; guarded by mu
	doubt  doubt                 // guarded by mu
}

func newTable(s *Store) *Table {
	return &Table{
		store: s, stream: s.cfg.Journal.StreamPrefix + "_" + tableName, turn: make(chan struct{}, 1), unwritten: make(chan struct{}, 1),
		lazy: map[string]*lazyValue{}, newest: map[string]uint64{},
	}
}

var _ store.Table = (*Table)(nil)

// The kinds of a table's messages.
const (
	kindValue     = 1
	kindTombstone = 2
)

// subject is where the values of a key stand. A key that a subject can hold stands there nearly as
// it is, for people who look at the stream: what is before its first slash is a token of its own, by
// which a watch can ask for it.
func (t *Table) subject(key string) string {
	group, rest := "", key
	if first, second, found := strings.Cut(key, "/"); found && isPlain(first) && second != "" {
		group, rest = "."+first, second
	}
	if isPlain(rest) {
		return t.stream + ".key" + group + "." + rest
	}
	return t.stream + ".b64" + group + "." + base64.RawURLEncoding.EncodeToString([]byte(rest))
}

// filter has all subjects at which the keys with a prefix stand, and perhaps others.
func (t *Table) filter(prefix string) string {
	if group, _, found := strings.Cut(prefix, "/"); found && isPlain(group) {
		return t.stream + ".*." + group + ".>"
	}
	return ">"
}

// isPlain reports whether a text stands in a subject as it is.
func isPlain(text string) bool {
	return text != "" && len(text) <= 255 && !strings.ContainsFunc(text, isUnsafe)
}

// isUnsafe says what does not stand in a subject as it is.
func isUnsafe(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_/=", r)
}

// Get implements [store.Table]. It asks the leader.
func (t *Table) Get(ctx context.Context, key string) (store.Value, error) {
	subject := t.subject(key)
	if err := t.flush(ctx, func(p *put) bool { return p.subject == subject }); err != nil {
		return store.Value{}, err
	}
	return t.get(ctx, subject, key)
}

// List implements [store.Table]. It asks the leader which keys there are, and then for their
// values, many at a time: over a slow network it takes as long as a few questions, however many
// values there are. The servers answer for many values at once only where any replica may, and
// that may lag.
func (t *Table) List(ctx context.Context, prefix string) ([]store.Value, error) {
	if err := t.flush(ctx, func(p *put) bool { return strings.HasPrefix(p.key, prefix) }); err != nil {
		return nil, err
	}
	keys, err := t.keys(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list the table: %w", err)
	}
	all := make([]store.Value, len(keys))
	err = durable.SideBySide(len(keys), func(i int) (err error) {
		all[i], err = t.get(ctx, t.subject(keys[i]), keys[i])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the table: %w", err)
	}
	t.forget(ctx, all)
	return slices.DeleteFunc(all, func(v store.Value) bool { return v.Data == nil }), nil
}

const (
	// tombstones is how many of them a list leaves. Each process of a relay ends as one, and whoever
	// lists the relays asks for all of them, too.
	tombstones = 64
	// forgets bounds how many a list removes: it has something else to do.
	forgets = 32
)

// forget removes the oldest tombstones of a list. A message is removed by its sequence, so that a value
// that was put meanwhile stays. A failure, or a crash, leaves a tombstone to the next list.
func (t *Table) forget(ctx context.Context, all []store.Value) {
	var gone []uint64
	d := t.known()
	for _, v := range all {
		if v.Data == nil && v.Rev > 0 && !v.Doubtful {
			gone = append(gone, d.sequence(v.Rev))
		}
	}
	slices.Sort(gone)
	gone = gone[:min(max(0, len(gone)-tombstones), forgets)]
	_ = durable.SideBySide(len(gone), func(i int) error {
		if err := t.handle.DeleteMsg(ctx, gone[i]); err != nil {
			t.store.log.Debug("removing a tombstone failed", "stream", t.stream, "sequence", gone[i], "error", err)
		}
		return nil
	})
}

// keys are those with a prefix that have a value or a tombstone, sorted.
func (t *Table) keys(ctx context.Context, prefix string) (keys []string, err error) {
	err = t.store.patiently(ctx, t.stream, func(ctx context.Context) error {
		info, err := t.handle.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return fmt.Errorf("ask which keys there are: %w", err)
		}
		for subject := range info.State.Subjects {
			if key, is := t.keyAt(subject); is && strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// keyAt is the key whose values stand at a subject, as [Table.subject] names it.
func (t *Table) keyAt(subject string) (key string, is bool) {
	if key, is = strings.CutPrefix(subject, t.stream+".key."); is {
		return strings.Replace(key, ".", "/", 1), true
	}
	rest, is := strings.CutPrefix(subject, t.stream+".b64.")
	if !is {
		return "", false
	}
	dot := strings.IndexByte(rest, '.') + 1
	text, err := base64.RawURLEncoding.DecodeString(rest[dot:])
	return strings.Replace(rest[:dot], ".", "/", 1) + string(text), err == nil
}

func (t *Table) tellDamage(m message) {
	t.store.log.Error("a value of the table is damaged", "stream", t.stream, "subject", m.Subject, "sequence", m.Seq)
}

// get reads the newest value of a subject. A damaged one is doubtful, and has its revision,
// so that a put can replace it.
func (t *Table) get(ctx context.Context, subject, key string) (store.Value, error) {
	got, err := t.store.ask(ctx, t.stream, query{LastOf: subject})
	if errors.Is(err, errMissing) {
		return store.Value{Key: key, Doubtful: t.known().isDoubtful(0)}, nil
	}
	if err != nil {
		return store.Value{}, fmt.Errorf("read the value of %s: %w", key, err)
	}
	v, err := t.value(got)
	switch {
	case errors.Is(err, ErrVersion):
		return store.Value{}, fmt.Errorf("read the value of %s: %w", key, err)
	case err != nil || v.Key != key:
		t.tellDamage(got)
		return store.Value{Key: key, Rev: t.known().revision(got.Seq), Doubtful: true}, nil //nolint:nilerr // the doubt says it
	}
	return v, nil
}

func (t *Table) value(m message) (store.Value, error) {
	f, err := decode(t.stream, m.Data)
	if err != nil {
		return store.Value{}, err
	}
	d := t.known()
	v := store.Value{Key: f.draft.Key, Rev: d.revision(m.Seq), Doubtful: d.isDoubtful(m.Seq)}
	if f.draft.Kind == kindValue {
		v.Data = append([]byte{}, f.draft.Data...)
	}
	return v, nil
}

// put is one write of the table, whose condition [Table.put] turns into a sequence.
type put struct {
	subject, key string
	data         []byte // nil for a tombstone
	guarded      bool
	guard        string // the subject whose newest revision is rev
	rev          uint64
}

// Put implements [store.Table].
func (t *Table) Put(ctx context.Context, key string, data []byte, c store.If) (rev uint64, err error) {
	p, err := t.putOf(key, data, c)
	if err != nil {
		return 0, err
	}
	// Lazy values that this key guards were put before.
	if err := t.flush(ctx, func(lazy *put) bool { return lazy.guarded && lazy.guard == p.subject }); err != nil {
		return 0, err
	}
	if rev, err = t.put(ctx, p); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest[p.subject] = max(t.newest[p.subject], rev)
	return rev, nil
}

func (t *Table) putOf(key string, data []byte, c store.If) (put, error) {
	if size := len(key) + len(data); key == "" || len(key) > store.MaxKey || size > t.store.maxPayload()-headerRoom {
		return put{}, fmt.Errorf("put the value of a key of %d bytes: %w", len(key), store.ErrTooLarge)
	}
	p := put{subject: t.subject(key), key: key, data: data}
	if c != (store.If{}) {
		p.guarded, p.guard, p.rev = true, t.subject(c.Key), c.Rev
	}
	return p, nil
}

// put writes until the cluster has answered. A crash before the answer leaves the old value
// or the new one.
func (t *Table) put(ctx context.Context, p put) (uint64, error) {
	f := frame{nonce: newNonce(), time: time.Now().UnixNano(), draft: store.Draft{Kind: kindValue, Key: p.key, Data: p.data}}
	if p.data == nil {
		f.draft.Kind = kindTombstone
	}
	data := f.encode(t.stream)
	p.rev = t.known().sequence(p.rev)
	attempt := firstPatience
	seq, err := t.store.insist(ctx, func(ctx context.Context) (uint64, error) {
		trying, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		attempt = min(2*attempt, attemptTimeout)
		seq, err := t.try(trying, p, f.nonce, data)
		if isWrongSequence(err) {
			seq, err = t.conflict(ctx, p, f.nonce, err)
		}
		return seq, err
	})
	if err != nil {
		return 0, fmt.Errorf("put the value of %s: %w", p.key, err)
	}
	rev := t.known().revision(seq)
	t.wrote(rev)
	return rev, nil
}

func (t *Table) try(ctx context.Context, p put, nonce uint64, data []byte) (seq uint64, err error) {
	m := &nats.Msg{Subject: p.subject, Header: nats.Header{}, Data: data}
	m.Header.Set(jetstream.MsgIDHeader, strconv.FormatUint(nonce, 16))
	if p.guarded {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(p.rev, 10))
		if p.guard != p.subject {
			m.Header.Set(headerGuard, p.guard)
		}
	}
	return t.store.publish(ctx, m)
}

// headerGuard names the subject whose newest sequence is expected.
const headerGuard = "Nats-Expected-Last-Subject-Sequence-Subject"

// conflict reads what stands in the table, since the refusal alone proves nothing. It
// returns the sequence if an earlier try wrote the value, ErrConflict if the condition does
// not hold, and otherwise the refusal, which another try may overcome.
func (t *Table) conflict(ctx context.Context, p put, nonce uint64, refused error) (uint64, error) {
	got, err := t.store.ask(ctx, t.stream, query{LastOf: p.subject})
	if err == nil {
		if f, err := decode(t.stream, got.Data); err == nil && f.nonce == nonce {
			return got.Seq, nil
		}
	}
	if p.guard != p.subject {
		got, err = t.store.ask(ctx, t.stream, query{LastOf: p.guard})
	}
	if err != nil && !errors.Is(err, errMissing) {
		return 0, refused
	}
	if got.Seq != p.rev { // 0 if there is none
		return 0, fmt.Errorf("%w: its sequence is %d, and not %d", store.ErrConflict, got.Seq, p.rev)
	}
	return 0, refused
}
