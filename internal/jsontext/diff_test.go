package jsontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRootHasTheEmptyPointer: in RFC 6901, "/" is the member with the empty name.
func TestRootHasTheEmptyPointer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		want          []string
	}{
		{`1`, `{}`, []string{""}},
		{`{"":1}`, `{"":2}`, []string{"/"}},
		{`{"a/b":{"~":1}}`, `{"a/b":{"~":2}}`, []string{"/a~1b/~0"}},
	} {
		changes, err := Diff(nil, []byte(c.before), []byte(c.after))
		require.NoError(t, err)
		var got []string
		for _, change := range changes.List {
			got = append(got, change.Path)
		}
		require.Equal(t, c.want, got)
	}
}

// TestTheListIsBounded, because a long name above many changes would be a part of each of their
// paths.
func TestTheListIsBounded(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 1<<20)
	side := func(value string) json.RawMessage {
		return json.RawMessage(`{"a":` + value + `,"` + name + `":[` + strings.Repeat(value+",", 5000) + `0]}`)
	}
	changes, err := Diff(nil, side(`1`), side(`2`))
	require.NoError(t, err)
	require.Equal(t, 5001, len(changes.List)+changes.More)
	require.Less(t, len(changes.List), 10)
	changes, err = Diff(nil, json.RawMessage(`[`+strings.Repeat(`1,`, 3*maxChanges)+`0]`), json.RawMessage(`[]`))
	require.NoError(t, err)
	require.Len(t, changes.List, maxChanges)
	require.Equal(t, 2*maxChanges+1, changes.More)
}
