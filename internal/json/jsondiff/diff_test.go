package jsondiff

import (
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
		for _, change := range changes {
			got = append(got, change.Path)
		}
		require.Equal(t, c.want, got)
	}
}
