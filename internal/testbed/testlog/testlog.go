// Package testlog is a transparency log in memory, for tests of witnesses.
package testlog

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Log is a log whose leaves are words with a number.
type Log struct {
	t      *testing.T
	signer note.Signer
	// Public is the verifier key.
	Public string
	size   int64
	hashes []tlog.Hash // as tlog stores them
}

// New makes a log with a new key.
func New(t *testing.T, origin string, leaves int, word string) *Log {
	t.Helper()
	secret, public, err := note.GenerateKey(rand.Reader, origin)
	require.NoError(t, err)
	signer, err := note.NewSigner(secret)
	require.NoError(t, err)
	return (&Log{t: t, signer: signer, Public: public}).Grow(leaves, word)
}

// Origin is the log's.
func (l *Log) Origin() string { return l.signer.Name() }

// Grow appends leaves.
func (l *Log) Grow(leaves int, word string) *Log {
	l.t.Helper()
	for range leaves {
		leaf := tlog.RecordHash(fmt.Appendf(nil, "%s %d", word, l.size))
		more, err := tlog.StoredHashesForRecordHash(l.size, leaf, l.reader())
		require.NoError(l.t, err)
		l.hashes = append(l.hashes, more...)
		l.size++
	}
	return l
}

// Fork is a log with the same key and the first n leaves: a split view once it grows.
func (l *Log) Fork(n int64) *Log {
	return &Log{t: l.t, signer: l.signer, Public: l.Public, size: n, hashes: slices.Clone(l.hashes[:tlog.StoredHashCount(n)])}
}

// Generation is an empty log with the same secret under another origin.
func (l *Log) Generation(origin string) *Log {
	l.t.Helper()
	public, err := proof.Renamed(l.Public, origin)
	require.NoError(l.t, err)
	verifier, err := note.NewVerifier(public)
	require.NoError(l.t, err)
	return &Log{t: l.t, signer: otherName{l.signer, origin, verifier.KeyHash()}, Public: public}
}

// otherName signs under another name: an Ed25519 signature does not cover it.
type otherName struct {
	note.Signer
	name string
	hash uint32
}

func (o otherName) Name() string    { return o.name }
func (o otherName) KeyHash() uint32 { return o.hash }

func (l *Log) reader() tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var all []tlog.Hash
		for _, i := range indexes {
			all = append(all, l.hashes[i])
		}
		return all, nil
	})
}

// Root is the root of the first n leaves.
func (l *Log) Root(n int64) tlog.Hash {
	l.t.Helper()
	root, err := tlog.TreeHash(n, l.reader())
	require.NoError(l.t, err)
	return root
}

// At is the signed checkpoint of the first n leaves.
func (l *Log) At(n int64) []byte {
	l.t.Helper()
	return l.Sign(proof.Checkpoint{Origin: l.Origin(), Size: n, Root: l.Root(n)})
}

// Sign signs any checkpoint with the log's key.
func (l *Log) Sign(c proof.Checkpoint) []byte {
	l.t.Helper()
	signed, err := note.Sign(&note.Note{Text: c.String()}, l.signer)
	require.NoError(l.t, err)
	return signed
}

// Prove proves the first n leaves to begin with the first old ones.
func (l *Log) Prove(old, n int64) []tlog.Hash {
	l.t.Helper()
	if old <= 0 || old >= n {
		return nil
	}
	hashes, err := tlog.ProveTree(n, old, l.reader())
	require.NoError(l.t, err)
	return hashes
}
