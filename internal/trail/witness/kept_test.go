package witness

import (
	"bytes"
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// fullOnce is a store that has no room for the first record with a text in it.
type fullOnce struct {
	store.Store
	text    string
	refused atomic.Int64
}

func (s *fullOnce) Log(ctx context.Context, name string, o store.Options) (store.Log, error) {
	l, err := s.Store.Log(ctx, name, o)
	return fullLog{l, s}, err
}

type fullLog struct {
	store.Log
	of *fullOnce
}

func (l fullLog) AppendAt(ctx context.Context, after store.Pos, drafts ...store.Draft) (store.Pos, error) {
	if bytes.Contains(drafts[0].Data, []byte(l.of.text)) && l.of.refused.Add(1) == 1 {
		return 0, store.ErrFull
	}
	return l.Log.AppendAt(ctx, after, drafts...)
}

// Signatures for which the store had no room are kept as soon as it has, though no witness is asked again.
func TestSignaturesAreKeptOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &fullOnce{Store: trailtest.Store(t, dir), text: "a.example.com/w"}
	o := audit.Options{KeySource: audit.KeySource{Origin: "example.com/trail", KeyFile: filepath.Join(dir, "audit.key")}}
	trail, err := audit.Open(t.Context(), s, o)
	require.NoError(t, err)
	_, err = trail.End(t.Context())
	require.NoError(t, err)
	a := newPeerWitness(t, "a.example.com/w", trail.PublicKey())
	cosigner := newScene(t, 1, a)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cosigner.Run(ctx, trail)
	}()
	_, err = trail.Append(t.Context(), audit.Entry{Type: "x", Project: "acme", Subject: "s", Time: time.Now()})
	require.NoError(t, err)
	cosigned := func() (found bool) {
		err := trail.Checkpoints(t.Context(), 1, func(c audit.Kept) error {
			found = found || bytes.Contains([]byte(c.Note), []byte(s.text))
			return nil
		}, func() error { return context.Canceled })
		require.ErrorIs(t, err, context.Canceled)
		return found
	}
	waiting.Until(t, cosigned, "the checkpoint is not kept with the signature of the witness")
	require.GreaterOrEqual(t, s.refused.Load(), int64(2))
	cancel()
	<-ended
	require.NoError(t, trail.Close(context.WithoutCancel(t.Context())))
	require.NoError(t, s.Close())
}
