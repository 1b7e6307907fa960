package meaning

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

func mustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// apply applies a patch as RFC 6902 says.
func apply(v any, patch []Operation) (any, error) {
	for _, o := range patch {
		var steps []string
		if o.Path != "" {
			steps = strings.Split(o.Path, "/")[1:]
		}
		var err error
		if v, err = applyOne(v, o, steps); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Op, o.Path, err)
		}
	}
	return v, nil
}

func applyOne(v any, o Operation, steps []string) (any, error) {
	if len(steps) == 0 {
		if o.Op == "remove" {
			return nil, nil
		}
		return jsondiff.Decode(o.Value)
	}
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[0])
	last := len(steps) == 1
	switch x := v.(type) {
	case map[string]any:
		_, exists := x[name]
		if exists == (last && o.Op == "add") {
			return nil, fmt.Errorf("member %q exists: %v", name, exists)
		}
		if last && o.Op == "remove" {
			delete(x, name)
			return x, nil
		}
		var err error
		x[name], err = applyOne(x[name], o, steps[1:])
		return x, err
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i > len(x) || i == len(x) && (!last || o.Op != "add") {
			return nil, fmt.Errorf("no index %q", name)
		}
		switch {
		case last && o.Op == "remove":
			return slices.Delete(x, i, i+1), nil
		case last && o.Op == "add":
			value, err := jsondiff.Decode(o.Value)
			return slices.Insert(x, i, value), err
		}
		x[i], err = applyOne(x[i], o, steps[1:])
		return x, err
	}
	return nil, fmt.Errorf("nothing at %q", name)
}

// requirePatch applies a reading's patch.
func requirePatch(t *testing.T, before, after json.RawMessage, patch []Operation) {
	t.Helper()
	v, err := jsondiff.Read(before)
	require.NoError(t, err)
	got, err := apply(v.Value, patch)
	require.NoError(t, err, "%s to %s", before, after)
	if len(after) == 0 {
		require.Nil(t, got)
		return
	}
	want, err := jsondiff.Canonical(after)
	require.NoError(t, err)
	canonical, err := jsondiff.Canonical(jsondiff.Encode(got))
	require.NoError(t, err)
	require.Equal(t, string(want), string(canonical), "from %s by %v", before, patch)
}

// randomValue makes a small JSON value, with few names: two values have much in common.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(5 + 4*min(depth, 1)); n {
	case 0:
		return nil
	case 1, 2, 3:
		return n
	case 4:
		return []string{"", "/", "~1"}[r.IntN(3)]
	case 5, 6:
		list := []any{}
		for range r.IntN(5) {
			list = append(list, randomValue(r, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for _, name := range some(r, []string{"", "a/b", "~", "~1", "0"}) {
		object[name] = randomValue(r, depth-1)
	}
	return object
}

func TestPatchMakesTheStateAfter(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	whole := 0
	for range pairs(t, 10) {
		a, b := mustJSON(t, randomValue(r, 4)), mustJSON(t, randomValue(r, 4))
		got, err := Read("x", a, b)
		require.NoError(t, err)
		requirePatch(t, a, b, got.Patch)
		if len(got.Patch) == 1 && got.Patch[0].Path == "" {
			whole++
		}
	}
	require.Less(t, whole, pairs(t, 10)*9/10, "nearly each patch replaces the whole state")
}

func TestPatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, want string }{
		{`[1,2,3]`, `[1,3]`, `[{"op":"remove","path":"/1"}]`},
		{`[1,3]`, `[1,2,3]`, `[{"op":"add","path":"/1","value":2}]`},
		{`{"a":null}`, `{"b":null}`, `[{"op":"remove","path":"/a"},{"op":"add","path":"/b","value":null}]`},
		{`{"a":{"b/c":1}}`, `{"a":{"b/c":2}}`, `[{"op":"replace","path":"/a/b~1c","value":2}]`},
		{`1`, `2`, `[{"op":"replace","path":"","value":2}]`},
		{``, `2`, `[{"op":"add","path":"","value":2}]`},
		{`2`, ``, `[{"op":"remove","path":""}]`},
		{`["DE","US"]`, `["US","DE"]`, `[{"op":"replace","path":"/0","value":"US"},{"op":"replace","path":"/1","value":"DE"}]`},
		{`[` + strings.Repeat(`1,`, 200) + `1]`, `[]`, `[{"op":"replace","path":"","value":[]}]`}, // shorter than 201 operations
	} {
		r, err := Read("sms_country_codes", json.RawMessage(c.before), json.RawMessage(c.after))
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(mustJSON(t, r.Patch)))
	}
}
