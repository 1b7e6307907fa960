package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/store"
)

// duplicates is how long the cluster knows the ids of messages: longer than an append is
// tried.
const duplicates = 2 * time.Minute

// Keys of a stream's metadata.
const (
	metaForm    = "auditrelay.form"    // of the stream and its messages
	metaVersion = "auditrelay.version" // of the program that wrote last
	metaLog     = "auditrelay.log"     // the id of a log
	form        = 2
)

// tableName is the log that no log can be: the names of logs are in small letters.
const tableName = "TABLE"

// streamName is the name of a log's stream.
func (s *Store) streamName(log string) string {
	return s.cfg.Journal.StreamPrefix + "_" + strings.ToUpper(strings.NewReplacer(".", "-", "-", "_").Replace(log))
}

// ensure makes a stream, or gives it the present settings. It reports whether the stream
// was made. It can be repeated.
func (s *Store) ensure(ctx context.Context, want jetstream.StreamConfig) (info *jetstream.StreamInfo, err error) {
	want.Storage, want.Discard = jetstream.FileStorage, jetstream.DiscardNew
	want.Replicas, want.Duplicates = s.cfg.Journal.Replicas, duplicates
	want.Metadata = maps.Clone(want.Metadata)
	want.Metadata[metaForm], want.Metadata[metaVersion] = strconv.Itoa(form), cmp.Or(s.cfg.Version, "dev")
	info, err = s.info(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		var made jetstream.Stream
		switch made, err = s.js.CreateStream(ctx, want); {
		case err == nil:
			return made.CachedInfo(), nil
		case !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
			return nil, fmt.Errorf("make stream %s: %w", want.Name, err)
		}
		info, err = s.info(ctx, want.Name) // another relay has made it at the same time
	}
	if err != nil {
		return nil, err
	}
	if err := s.checkForm(info); err != nil {
		return nil, err
	}
	have := info.Config
	if s.cfg.Journal.Replicas == 0 {
		want.Replicas = have.Replicas
	}
	if id := have.Metadata[metaLog]; id != "" {
		want.Metadata[metaLog] = id
	}
	if have.MaxBytes == want.MaxBytes && have.Replicas == want.Replicas && have.Duplicates >= duplicates && have.Metadata[metaVersion] == want.Metadata[metaVersion] {
		return info, nil
	}
	have.MaxBytes, have.Replicas, have.Duplicates = want.MaxBytes, want.Replicas, max(have.Duplicates, duplicates)
	maps.Copy(have.Metadata, want.Metadata)
	changed, err := s.js.UpdateStream(ctx, have)
	if err != nil {
		return nil, fmt.Errorf("change the settings of stream %s: %w", want.Name, err)
	}
	return changed.CachedInfo(), nil
}

// checkForm refuses a stream that another program made, or a version that keeps things elsewhere.
func (s *Store) checkForm(info *jetstream.StreamInfo) error {
	noted := info.Config.Metadata[metaForm]
	n, err := strconv.Atoi(noted)
	if noted == "" || err == nil && n < form {
		return fmt.Errorf("stream %s was not made by this version of auditrelay: it keeps its records in another form; "+
			"set another journal.stream_prefix, or delete all streams whose names begin with %s_ (what they hold is lost then); the stream was not changed",
			info.Config.Name, s.cfg.Journal.StreamPrefix)
	}
	if err != nil || n > form {
		return fmt.Errorf("stream %s has the form %s of auditrelay %s, and this version knows forms up to %d: %w",
			info.Config.Name, noted, info.Config.Metadata[metaVersion], form, ErrVersion)
	}
	return nil
}

func (s *Store) openTable(ctx context.Context) error {
	s.table = newTable(s)
	info, err := s.ensure(ctx, jetstream.StreamConfig{
		Name: s.table.stream, Subjects: []string{s.table.stream + ".>"}, MaxMsgsPerSubject: 1, MaxBytes: -1, Metadata: map[string]string{},
	})
	if err == nil {
		s.table.handle, err = s.js.Stream(ctx, s.table.stream)
	}
	if err != nil {
		return err
	}
	return s.table.resume(ctx, info)
}

// Log implements [store.Store].
func (s *Store) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.ctx.Err() != nil {
		return nil, store.ErrClosed
	}
	if opened, is := s.logs.Load(name); is {
		return opened.(*Log), nil
	}
	var l *Log
	err := await(ctx, s.log, "the log "+name, func(ctx context.Context) (err error) {
		l, err = s.openLog(ctx, name, o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the log %s: %w", name, err)
	}
	s.logs.Store(name, l)
	return l, nil
}

// openLog opens a log, or makes it. A crash at any line leaves a log that the next start
// opens in the same way: the stream is made with the id that the table is given after it.
func (s *Store) openLog(ctx context.Context, name string, o store.Options) (_ *Log, err error) {
	l := &Log{store: s, name: name, stream: s.streamName(name), tail: tail{grown: make(chan struct{})}}
	var kept note
	if l.note, kept, err = s.openNote(name); err != nil {
		return nil, err
	}
	if err := l.open(ctx, o, kept); err != nil {
		return nil, errors.Join(err, l.note.close())
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, o store.Options, kept note) error {
	s := l.store
	m, known, err := l.loadMeta(ctx)
	if err != nil {
		return err
	}
	if !known && kept.URL == s.cfg.Journal.URL { // the table is gone: the note in the data directory knows the log
		m, known = kept.Meta, true
		m.rev = 0
	}
	if !known {
		m.ID = cmp.Or(logID(o.ID.Log), newID())
	}
	id, _ := m.ID.MarshalText() // never fails
	info, err := s.ensure(ctx, jetstream.StreamConfig{
		Name: l.stream, Subjects: []string{l.stream}, MaxBytes: cmp.Or(o.MaxBytes, -1), AllowDirect: true, AllowAtomicPublish: true,
		Metadata: map[string]string{metaLog: string(id)},
	})
	if err != nil {
		return err
	}
	if !known { // the stream may have been there without the table
		if err := m.ID.UnmarshalText([]byte(info.Config.Metadata[metaLog])); err != nil {
			return err
		}
		m.Created = info.Created.UnixNano()
	}
	l.current.Store(&m)
	return l.resume(ctx, info, kept)
}

// resume finds out how far the log reached, and whether the cluster lost any of it.
func (l *Log) resume(ctx context.Context, info *jetstream.StreamInfo, kept note) error {
	m := l.meta()
	newest, err := l.loadEnd(ctx)
	if err != nil {
		return err
	}
	if newest.Meta.ID != m.ID {
		newest = note{}
	}
	if kept.Meta.ID == m.ID {
		if m.isOlder(&kept.Meta) { // the table lost its end, too
			m.Turns = kept.Meta.Turns
		}
		m.Trimmed = max(m.Trimmed, kept.Meta.Trimmed)
		if kept.Newest.Pos >= newest.Newest.Pos {
			newest = kept
		}
	} else if kept.Newest.Pos > 0 {
		l.store.log.Warn("the cluster has another log than the one that this relay used before: journal.url leads elsewhere, or the streams were deleted",
			"log", l.name, "before", kept.Meta.ID, "reached", kept.Newest.Pos, "now", m.ID)
	}
	if m.Created != info.Created.UnixNano() || m.rev == 0 {
		if err := l.adopt(ctx, info, newest.Newest.Pos); err != nil {
			return err
		}
	}
	end := l.meta().end(info.State.LastSeq)
	l.known.open(newest.Newest, l.meta().last(), end)
	if kept.Meta.ID == m.ID && kept.Meta.Created == l.meta().Created {
		l.known.resume(kept.Newest, l.note.spots(m.ID), &kept.Meta, l.meta())
	}
	if last, err := l.store.next(ctx, l.stream, info.State.LastSeq); err == nil {
		if f, err := decode(l.stream, last.Data); err == nil {
			l.stamp = f.time
		} else if errors.Is(err, ErrVersion) {
			return fmt.Errorf("stream %s, sequence %d: %w", l.stream, last.Seq, err)
		}
	}
	if err := l.compare(ctx); err != nil {
		return err
	}
	l.tail.reach(l.meta().end(info.State.LastSeq))
	return nil
}

// adopt writes down which stream has the log's records from now on. If it is another than
// before, everything that the old one had is lost.
func (l *Log) adopt(ctx context.Context, info *jetstream.StreamInfo, reached store.Pos) error {
	created, last := info.Created.UnixNano(), info.State.LastSeq
	if was := l.meta(); was.Created != created {
		reached = max(reached, was.Trimmed, was.last().first()-1)
		if reached > 0 {
			l.store.log.Error("the stream of a log was deleted, and another one has its name; the lost positions are named, and the log goes on after them",
				"log", l.name, "stream", l.stream, "made", info.Created, "lost_from", was.Trimmed+1, "lost_to", reached)
			l.store.rewinds.Inc()
		}
	}
	return l.changeMeta(ctx, func(m *meta) {
		if m.Created != created {
			m.replaced(reached, created, last)
		}
	})
}
