// Package store has the words for everything that auditrelay keeps: a durable,
// positioned [Log], and a small [Table] of values that are replaced only under a
// condition. The comments on them are the contract; storetest checks it against
// every backend.
//
// Two rules run through all of it. What was acknowledged is given back, or named as
// lost: a reader of a log sees each position exactly once, as a record or in a gap.
// And nobody decides by the clock: order is the order of positions and revisions.
package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Store is a set of logs and a table that are kept in one place. It is safe for
// concurrent use.
type Store interface {
	// Log opens the log of a name, or makes it. Names consist of a-z, 0-9, dots and
	// hyphens. A log is opened once; later calls give the same one.
	Log(ctx context.Context, name string, o Options) (Log, error)

	// Logs names the logs that the store has or had, sorted.
	Logs(ctx context.Context) ([]string, error)

	// Table is the store's table.
	Table() Table

	// Close ends appends and puts that are under way, and closes the store. Everything that
	// is called later returns ErrClosed.
	Close() error
}

// Options say how a log is kept.
type Options struct {
	// MaxBytes is the budget of the log: beyond it appends are ErrFull. 0 means none.
	MaxBytes int64
	// Allocate reserves a segment's room when it is made, where the backend can do that, so
	// that a full disk is noticed between two segments and not in one.
	Allocate bool
	// ID is the id of a log that is made, where it is to take over another store's. The zero
	// value stands for a new one.
	ID ID
}

// Pos is a record's place in a log. The first record of a log has position 1, and 0 is
// the place before it.
type Pos uint64

// ID names a log for as long as its positions mean the same records. A position is never
// given out twice under one ID: a log that lost its end, and has to give positions out
// again, goes on under another turn.
type ID struct {
	Log  [16]byte // random, chosen when the log is made
	Turn uint64
}

func (id ID) String() string { return fmt.Sprintf("%s.%d", hex.EncodeToString(id.Log[:]), id.Turn) }

// Draft is a record to be appended.
type Draft struct {
	// Kind says what Data is, in the words of the log's user.
	Kind uint8
	// Key is what the record is about; it may be empty. At most MaxKey bytes.
	Key  string
	Data []byte
}

// MaxKey bounds the keys of records and of values, in bytes.
const MaxKey = 1024

// Record is a draft that was appended.
type Record struct {
	Pos Pos
	// Time is when it was appended, by the clock of the process that did. It never
	// decreases from one position to the next, even where that clock was set back.
	Time time.Time
	Draft
}

// Reason says why positions hold no record.
type Reason string

// The reasons of a gap.
const (
	// Trimmed records were dropped by [Log.Trim].
	Trimmed Reason = "trimmed"
	// Damaged records were there, or may have been, and cannot be read any more.
	Damaged Reason = "damaged"
	// Doubtful records may have been there, and were perhaps acknowledged: bytes that are no
	// record stood at the log's end when it was opened after a power cut.
	Doubtful Reason = "doubtful"
	// Rewound positions were given out under an earlier ID, and lost by the backend.
	Rewound Reason = "rewound"
)

// Gap says that the positions From to To, both included, hold no record.
type Gap struct {
	From, To Pos
	Why      Reason
	// Kept is a file with the bytes that stood there; empty where nothing could be kept.
	Kept string
}

// Item is one step of a reader: a record, or a gap. Exactly one of the two is set.
type Item struct {
	Record *Record
	Gap    *Gap
}

// State describes a log.
type State struct {
	ID ID
	// First is the oldest position that was not trimmed, and End the newest confirmed one.
	// An empty log has First == End + 1.
	First, End Pos
	// Bytes is what the log takes of its budget.
	Bytes int64
}

var (
	// ErrFull means that the budget or the disk has no room. Nothing was stored.
	ErrFull = errors.New("there is no room")
	// ErrTooLarge means that a draft exceeds [Log.MaxRecord]. Nothing was stored.
	ErrTooLarge = errors.New("the record is too large")
	// ErrUnknown means that the drafts were perhaps stored: they must not be acknowledged.
	ErrUnknown = errors.New("it is not known whether the record was stored")
	// ErrConflict means that the condition of an append or a put does not hold, or that
	// somebody else is writing. Nothing was stored. Read, and then judge.
	ErrConflict = errors.New("the condition does not hold")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("the store is closed")
	// ErrGone means that the files were removed or replaced while the store used them.
	ErrGone = errors.New("the files of the store were removed or replaced")
)

// Log is a durable sequence of records. It is safe for concurrent use.
type Log interface {
	// Append returns nil once the drafts are durable, one after the other, and first is the
	// position of the first of them. After a crash a prefix of them is there. Each draft is
	// stored at most once in a call. The drafts' memory is free when Append returns.
	//
	// ErrFull and ErrTooLarge mean that nothing was stored. Every other error means that
	// the drafts were perhaps stored. After a failed sync all calls that waited for it fail.
	Append(ctx context.Context, drafts ...Draft) (first Pos, err error)

	// AppendAt appends only if the log ends with the position after, and returns
	// ErrConflict otherwise.
	AppendAt(ctx context.Context, after Pos, drafts ...Draft) (first Pos, err error)

	// Read gives what is confirmed from a position on, ascending and without holes: each
	// position is a record or lies in a gap. With follow it waits at the end for more,
	// until ctx ends; otherwise it ends there. A record's Key and Data may be used until
	// the next one is asked for.
	//
	// An error ends the sequence. Damage is no error, but a gap.
	Read(ctx context.Context, from Pos, follow bool) iter.Seq2[Item, error]

	// Seek returns the position of the first record of a time or later, or the position
	// after the end.
	Seek(ctx context.Context, t time.Time) (Pos, error)

	// State describes the log as it is now.
	State(ctx context.Context) (State, error)

	// Trim drops records before a position, as far as the backend can drop them without
	// rewriting others. Whoever calls it has made durable that nobody needs them: see
	// [Table.Sync].
	Trim(ctx context.Context, before Pos) error

	// Scrub reads back what the log keeps, from the medium and not from memory where the
	// backend can tell them apart, and gives each gap in it that was not made by Trim. A log
	// of many gigabytes takes minutes; the log stays in use meanwhile.
	Scrub(ctx context.Context) iter.Seq2[Gap, error]

	// MaxRecord is the largest sum of a draft's Key and Data, in bytes. It may change while
	// the log is in use.
	MaxRecord() int
}

// Taker is a log that can take over another store's: it has the same id then, and each record
// has the position and the time that it had there. So nothing that refers to a position has to
// be changed. A crash leaves what was taken so far, and the log's end says how far that is.
type Taker interface {
	Log

	// Take appends records whose positions follow one another and the log's end. It returns
	// ErrConflict if they do not follow the end.
	Take(ctx context.Context, records ...Record) error

	// Pass goes on after the positions of a gap, which follow the log's end.
	Pass(ctx context.Context, gap Gap) error
}

// Value is an entry of a table.
type Value struct {
	Key string
	// Rev changes with each write of the key. It is 0 for a key that was never written.
	Rev uint64
	// Data is nil after a tombstone, and for a key that was never written.
	Data []byte
	// Doubtful means that values were lost, and that a newer one of this key may be among
	// them: Data is perhaps an older one, or nil although there was one. It stays until the
	// next write of the key.
	Doubtful bool
}

// If is the condition of a write: the newest revision of Key is Rev. Key may be another
// than the key that is written, since an epoch guards a position. The empty condition
// always holds.
type If struct {
	Key string
	Rev uint64
}

// Table keeps small values by key. A value that was put is there until it is replaced, or
// the loss shows: a key's value is never an older one without being called doubtful. It is
// safe for concurrent use.
type Table interface {
	// Get returns the value of a key. It may be stale: only a put decides.
	Get(ctx context.Context, key string) (Value, error)

	// List returns the values of all keys with a prefix, in the order of their keys and
	// without tombstones. It may be stale, as Get.
	List(ctx context.Context, prefix string) ([]Value, error)

	// Put makes a value durable if the condition holds, and returns its revision. Nil data
	// is a tombstone, which may be forgotten once there are many newer ones: then its key counts as
	// never written. ErrConflict means that the condition does not hold, and ErrUnknown that the
	// value was perhaps written, or will be.
	Put(ctx context.Context, key string, data []byte, c If) (rev uint64, err error)

	// PutLazy is Put for a value that is written often: after a kill of the process it is
	// there exactly as written, after a power cut it may be an older one, and it is never
	// newer than what was put. A key is written either by Put or by PutLazy.
	PutLazy(ctx context.Context, key string, data []byte, c If) error

	// Sync makes all lazy values durable.
	Sync(ctx context.Context) error

	// Watch gives the values of all keys with a prefix, tombstones left out, and then each
	// change, until ctx ends. Of several changes of a key it may give the newest only.
	Watch(ctx context.Context, prefix string) iter.Seq2[Value, error]
}
