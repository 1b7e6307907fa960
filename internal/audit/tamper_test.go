package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// tampering changes a copy of the trail, and says what Verify must name.
type tampering struct {
	entries     func(msgs []*nats.Msg) []*nats.Msg
	checkpoints func(msgs []*nats.Msg) []*nats.Msg
	delete      uint64 // a sequence of the entries' stream, afterwards
	noPin       bool   // the one who tampers reaches the key's folder too
	pin         []byte // put in the place of the newest
	want        []string
}

const missingPin = "the checkpoint beside the key (audit.key.checkpoint) is missing, though the key has signed"

func keep(msgs []*nats.Msg) []*nats.Msg { return msgs }

// alter changes one record as a careful forger would: canonical, same resource.
func alter(msg *nats.Msg) {
	msg.Data = bytes.Replace(msg.Data, []byte(`"value":`), []byte(`"value":9`), 1)
}

func TestTampering(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	o.SignEvery = time.Hour // the trail signs the first entry by itself, and the test the others
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, o)
	appendEntries(t, trail, 0, 1)
	waitSigned(t, trail, 1)
	pins := map[int64][]byte{} // by size
	for i := range 10 {        // checkpoints of size 1, 2, 4, 6 and so on
		appendEntries(t, trail, max(1, 2*i), 2*i+2)
		require.NoError(t, trail.sign(t.Context()))
		var err error
		pins[trail.signed.n], err = os.ReadFile(o.KeyFile + ".checkpoint")
		require.NoError(t, err)
	}
	require.NoError(t, trail.Close(t.Context()))
	entries, checkpoints := messages(t, js, "TEST_AUDIT"), messages(t, js, "TEST_CHECKPOINTS")
	require.Len(t, checkpoints, 11)

	for name, tc := range map[string]tampering{
		"untouched": {entries: keep},
		"altered": {
			entries: func(m []*nats.Msg) []*nats.Msg { alter(m[7]); return m },
			want:    []string{"entry 7 altered"},
		},
		"two altered": {
			entries: func(m []*nats.Msg) []*nats.Msg { alter(m[0]); alter(m[19]); return m },
			want:    []string{"entry 0 altered", "entry 19 altered"},
		},
		"removed": {
			entries: func(m []*nats.Msg) []*nats.Msg { return slices.Delete(m, 7, 8) },
			want:    []string{"entry 7 removed", "entries 8 to 19 moved"},
		},
		"deleted in place": {
			entries: keep, delete: 8,
			want: []string{"entry 7 missing"},
		},
		"last deleted in place": {
			entries: keep, delete: 20,
			want: []string{"entry 19 missing"},
		},
		"swapped": {
			entries: func(m []*nats.Msg) []*nats.Msg { m[3], m[12] = m[12], m[3]; return m },
			want:    []string{"entry 3 moved: stands +9", "entry 12 moved: stands -9"},
		},
		"inserted": {entries: func(m []*nats.Msg) []*nats.Msg {
			forged := copyMsg(m[4])
			alter(forged)
			return slices.Insert(m, 4, forged)
		}, want: []string{"entry 4 foreign", "entries 4 to 19 moved: stands +1"}},
		"truncated": {
			entries: func(m []*nats.Msg) []*nats.Msg { return m[:15] },
			want:    []string{"entries 15 to 19 truncated"},
		},
		"all gone": {
			entries: func(m []*nats.Msg) []*nats.Msg { return nil },
			want:    []string{"entries 0 to 19 truncated"},
		},
		"rolled back with its checkpoints": {
			entries:     func(m []*nats.Msg) []*nats.Msg { return m[:10] },
			checkpoints: func(m []*nats.Msg) []*nats.Msg { return m[:6] },
			want:        []string{"truncated: the checkpoint beside the key covers 20"},
		},
		"under another resource": {entries: func(m []*nats.Msg) []*nats.Msg {
			m[6].Subject = m[5].Subject
			return m
		}, want: []string{"entry 6 misfiled"}},
		"altered with its hash": { // the forger redoes the list, but cannot sign
			entries: func(m []*nats.Msg) []*nats.Msg { alter(m[7]); return m },
			checkpoints: func(m []*nats.Msg) []*nats.Msg {
				changeKept(m[4], func(k *keptCheckpoint) { k.Leaves[40] ^= 1 })
				return m
			}, want: []string{"entries 6 to 7 unproven"},
		},
		"hashes damaged": { // the entries give the root without them
			entries: keep, checkpoints: func(m []*nats.Msg) []*nats.Msg {
				changeKept(m[4], func(k *keptCheckpoint) { k.Leaves[40] ^= 1 })
				return m
			}},
		"checkpoint removed and entry altered": {
			entries:     func(m []*nats.Msg) []*nats.Msg { alter(m[18]); return m },
			checkpoints: func(m []*nats.Msg) []*nats.Msg { return slices.Delete(m, 3, 4) },
			want:        []string{"entry 18 altered"},
		},
		"signature damaged": {entries: keep, noPin: true, checkpoints: func(m []*nats.Msg) []*nats.Msg {
			changeKept(m[4], func(k *keptCheckpoint) { k.Note = strings.Replace(k.Note, "\n8\n", "\n9\n", 1) })
			return m
		}, want: []string{"checkpoint 5: check signature", missingPin}},
		"rolled back, the pin deleted": {
			entries:     func(m []*nats.Msg) []*nats.Msg { return m[:10] },
			checkpoints: func(m []*nats.Msg) []*nats.Msg { return m[:6] },
			noPin:       true, want: []string{missingPin},
		},
		"pin deleted": {entries: keep, noPin: true, want: []string{missingPin}},
		"nothing left but the key": {
			entries:     func(m []*nats.Msg) []*nats.Msg { return nil },
			checkpoints: func(m []*nats.Msg) []*nats.Msg { return nil },
			noPin:       true, want: []string{missingPin},
		},
		"no checkpoints left, and no pin": {
			entries:     func(m []*nats.Msg) []*nats.Msg { alter(m[7]); return m },
			checkpoints: func(m []*nats.Msg) []*nats.Msg { return nil },
			noPin:       true, want: []string{missingPin},
		},
		"an older pin":   {entries: keep, pin: pins[10], want: []string{"covers 10 entries of its tree and is older than the newest 5 kept ones"}},
		"the pin before": {entries: keep, pin: pins[18]}, // as after a crash between the two
		"a pin of other entries": {
			entries: keep, pin: bytes.Replace(pins[20], []byte("\n20\n"), []byte("\n21\n"), 1),
			want: []string{"the checkpoint beside the key: check signature"},
		},
	} {
		for _, test := range []struct {
			named string
			noted bool // a start need not read everything first
		}{{"", false}, {", as at a quick start", true}} {
			t.Run(name+test.named, func(t *testing.T) {
				t.Parallel()
				copied := o
				copied.KeyFile = copyKey(t, o.KeyFile, !tc.noPin)
				if test.noted {
					note, err := os.ReadFile(trail.verifiedFile())
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(copied.KeyFile+".verified", note, 0o600))
				}
				if tc.pin != nil {
					require.NoError(t, os.WriteFile(copied.KeyFile+".checkpoint", tc.pin, 0o600))
				}
				js, _ := startServer(t, t.TempDir())
				changed := tc.checkpoints
				if changed == nil {
					changed = keep
				}
				publish(t, js, streamConfig("TEST_AUDIT", "TEST.audit.>", 1), tc.entries(copyAll(entries)), tc.delete)
				publish(t, js, streamConfig("TEST_CHECKPOINTS", "TEST.audit-checkpoints", 1), changed(copyAll(checkpoints)), 0)
				named := openAndName(t, js, copied)
				if tc.want == nil {
					require.Empty(t, named)
					return
				}
				text := spellOut(named)
				t.Log(text)
				for _, want := range tc.want {
					require.Contains(t, text, want)
				}
				require.LessOrEqual(t, strings.Count(text, ";"), 2*len(tc.want), "too much is named: %s", text)
				require.Equal(t, named, openAndName(t, js, copied), "a second start names it again, or forgets it")
			})
		}
	}
}

// openAndName opens a trail, appends to it, and returns the problems that its own
// entries name, once they are signed. It must be whole but for those.
func openAndName(t *testing.T, js jetstream.JetStream, o Options) (named []Problem) {
	t.Helper()
	trail, err := Open(t.Context(), js, o)
	require.NoError(t, err)
	readAll(t, trail)
	_, err = trail.Append(t.Context(), testEntry(100))
	require.NoError(t, err)
	require.NoError(t, trail.Close(t.Context()))
	require.Equal(t, trail.tree.n, trail.signed.n)
	x, err := trail.examine(t.Context())
	require.NoError(t, err)
	require.Empty(t, x.named.unnamed(x.report.Problems))
	_, err = scan(t.Context(), trail.entries, resourceSubject("TEST", OwnProject, "", ownSubject), func(seq uint64, msg jetstream.Msg) error {
		e, err := trail.decode(msg.Subject(), msg.Headers(), msg.Data(), seq)
		require.NoError(t, err)
		var o opening
		require.NoError(t, json.Unmarshal(e.Detail, &o))
		named = append(named, o.Problems...)
		return nil
	})
	require.NoError(t, err)
	return named
}

// TestVerifyWhileOpen damages the trail under a relay that runs: Verify names it,
// appends go on behind it, and an entry of the trail names it.
func TestVerifyWhileOpen(t *testing.T) {
	t.Parallel()
	js, _ := startServer(t, t.TempDir())
	trail := openTrail(t, js, testOptions(t))
	appendEntries(t, trail, 0, 6)
	waitSigned(t, trail, 6)
	entries := messages(t, js, "TEST_AUDIT")
	require.NoError(t, js.DeleteStream(t.Context(), "TEST_AUDIT"))
	alter(entries[2])
	publish(t, js, streamConfig("TEST_AUDIT", "TEST.audit.>", 1), entries[:5], 0)

	report, err := trail.Verify(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, report.Err(), "entry 2 altered")
	require.ErrorContains(t, report.Err(), "entry 5 truncated")
	index, err := trail.Append(t.Context(), testEntry(6))
	require.NoError(t, err)
	require.EqualValues(t, 7, index, "behind the lost entry and the one that names the damage")
	last, found, err := trail.Last(t.Context(), OwnProject, "", ownSubject)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, TypeDamaged, last.Type)
	require.Contains(t, string(last.Detail), `"kind":"altered"`)
	require.Len(t, report.Generations, 1, "the hashes are kept, so the tree goes on")
}

func messages(t *testing.T, js jetstream.JetStream, name string) []*nats.Msg {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	var msgs []*nats.Msg
	_, err = scan(t.Context(), stream, "", func(_ uint64, msg jetstream.Msg) error {
		copied := nats.NewMsg(msg.Subject())
		copied.Data = msg.Data()
		msgs = append(msgs, copied)
		return nil
	})
	require.NoError(t, err)
	return msgs
}

func copyMsg(m *nats.Msg) *nats.Msg {
	copied := nats.NewMsg(m.Subject)
	copied.Data = bytes.Clone(m.Data)
	if lost := m.Header.Get(lostHeader); lost != "" {
		copied.Header.Set(lostHeader, lost)
	}
	return copied
}

func copyAll(msgs []*nats.Msg) []*nats.Msg {
	copied := make([]*nats.Msg, len(msgs))
	for i, m := range msgs {
		copied[i] = copyMsg(m)
	}
	return copied
}

// publish fills a fresh stream, deletes one message, and only then lets the
// stream deny deletes.
func publish(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig, msgs []*nats.Msg, deleted uint64) {
	t.Helper()
	open := config
	open.DenyDelete, open.DenyPurge = false, false
	stream, err := js.CreateStream(t.Context(), open)
	require.NoError(t, err)
	for _, m := range msgs {
		_, err := js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	if deleted > 0 {
		require.NoError(t, stream.DeleteMsg(t.Context(), deleted))
	}
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

func changeKept(m *nats.Msg, change func(*keptCheckpoint)) {
	kept := keptCheckpoint{}
	if json.Unmarshal(m.Data, &kept) == nil {
		change(&kept)
		m.Data, _ = json.Marshal(kept)
	}
}

func copyKey(t *testing.T, file string, withPin bool) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "audit.key")
	suffixes := []string{""}
	if withPin {
		suffixes = append(suffixes, ".checkpoint")
	}
	for _, suffix := range suffixes {
		data, err := os.ReadFile(file + suffix)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to+suffix, data, 0o600))
	}
	return to
}
