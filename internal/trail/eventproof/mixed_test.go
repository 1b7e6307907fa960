package eventproof

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/relay"
)

// whole proves an event, and the entry of its span.
func (s *scene) whole(e *relay.Event) *Bundle {
	s.t.Helper()
	b, err := Prove(s.t.Context(), s.logs(), s.trail, QueryOf(e))
	require.NoError(s.t, err)
	require.NoError(s.t, s.trail.Sign(s.t.Context()))
	dir := filepath.Join(s.t.TempDir(), tiles.Dir)
	require.NoError(s.t, tiles.NewKeeper(tiles.Open(dir), s.trail, s.trail.Generations, nil).Run(s.t.Context()))
	fetch, dirs, err := verify.Folder(dir)
	require.NoError(s.t, err)
	prover, err := verify.NewProver(s.t.Context(), fetch, dirs)
	require.NoError(s.t, err)
	made, err := prover.Prove(s.t.Context(), b.EntryIndex)
	require.NoError(s.t, err)
	b.Trail = string(made.Proof.Marshal())
	return b
}

// Of two bundles, by two trails of one name or by one trail, no mixture of the parts holds, unless it is one of them.
func TestAMixtureOfTwoBundlesProvesNothing(t *testing.T) {
	t.Parallel()
	one, other := open(t, t.TempDir()), open(t, t.TempDir())
	defer one.shut()
	defer other.shut()
	var policies []proof.Policy
	var events [][]relay.Event
	for _, s := range []*scene{one, other} {
		events = append(events, append(s.push("event_log.LOGIN", 4), s.push("event_log.LOGIN", 5)...))
		s.end()
		policy, err := proof.NewPolicy([]proof.Log{{Key: s.trail.Generations()[0].PublicKey}}, nil, 0)
		require.NoError(t, err)
		policies = append(policies, policy)
	}
	first := one.whole(&events[0][1])
	for name, second := range map[string]*Bundle{
		"another trail": other.whole(&events[1][1]), "another record": one.whole(&events[0][6]), "another event": one.whole(&events[0][2]),
	} {
		sound := map[string]bool{encoded(t, first): false, encoded(t, second): false}
		require.Len(t, sound, 2, name)
		fields := slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[Bundle]()), func(f reflect.StructField) bool { return f.Anonymous })
		for parts := range 1 << len(fields) {
			mixed := *first
			for i, f := range fields {
				if parts>>i&1 == 1 {
					reflect.ValueOf(&mixed).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(second).Elem().FieldByIndex(f.Index))
				}
			}
			if _, err := mixed.Verify(); err != nil {
				continue
			}
			for _, policy := range policies {
				if _, _, err := verify.Entry(policy, mixed.Trail, mixed.EntryIndex, mixed.Entry); err == nil {
					text := encoded(t, &mixed)
					require.Contains(t, sound, text, "%s: the parts %b", name, parts)
					sound[text] = true
				}
			}
		}
		for _, held := range sound {
			require.True(t, held, name)
		}
	}
}

func encoded(t *testing.T, b *Bundle) string {
	t.Helper()
	text, err := json.Marshal(b)
	require.NoError(t, err)
	return string(text)
}
