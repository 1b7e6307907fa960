package eventproof

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/relay"
)

// What leaves the relay with a redacted copy confirms no guess at what was redacted: neither
// the span's entry, nor its list, nor the proof of another event of the same record.
func TestNothingThatLeavesConfirmsAGuess(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer s.shut()
	all := s.events("event_log.LOGIN", 3)
	withPhone := func(number int) []relay.Event {
		events := append([]relay.Event(nil), all...)
		events[1].Body = fmt.Appendf(nil, `{"phone":"+4179000%04d"}`, number)
		return events
	}
	batchOf := func(events []relay.Event) *record.Batch {
		var b record.Batch
		for i := range events {
			b.AddEvent(&events[i])
		}
		return &b
	}
	const secret = 42
	require.NoError(t, s.journal.Append(t.Context(), batchOf(withPhone(secret))))
	s.end()
	var left bytes.Buffer
	out := json.NewEncoder(&left)
	require.NoError(t, out.Encode(s.spans()))
	bundle, err := Prove(t.Context(), s.logs(), s.trail, QueryOf(&all[0]))
	require.NoError(t, err)
	require.NoError(t, out.Encode(bundle))

	for number := secret - 5; number < secret+5; number++ { // as somebody would who tries them all
		guess := withPhone(number)
		hash := record.HashOf(&guess[1])
		rec := record.Append(nil, batchOf(guess).Bytes(), len(guess))
		salted := record.Salt(bundle.Salt).Leaf(hash) // by the one salt that left
		for name, sum := range map[string][sha256.Size]byte{
			"hash": hash, "leaf": tlog.RecordHash(hash[:]), "record": sha256.Sum256(rec),
			"body": sha256.Sum256(guess[1].Body), "salted": salted,
		} {
			assert.NotContains(t, left.String(), hex.EncodeToString(sum[:]), "%s of guess %d", name, number)
			assert.NotContains(t, left.String(), base64.StdEncoding.EncodeToString(sum[:]), "%s of guess %d", name, number)
		}
	}
}
