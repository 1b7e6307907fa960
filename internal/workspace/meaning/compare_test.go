package meaning

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	const policy = `{"custom_roles":[{"role_id":"a","description":"x","permissions":[{"resource_id":"d","actions":["r","w"]}]},{"role_id":"b"}],
		"brand_admin":{"permissions":[{"resource_id":"d","actions":["r","w"]},{"resource_id":"e","actions":[]}]},
		"brand_resources":[{"resource_id":"d","available_actions":["r","w"]},{"resource_id":"e"}],
		"custom_scopes":[],"custom_resources":[]}`
	for name, tc := range map[string]struct {
		kind          kinds.Setting
		before, after string
		want          []string
	}{
		"same":          {kinds.RBACPolicy, policy, policy, nil},
		"spelling":      {kinds.Project, `{"a":1.0,"b":"é"}`, ` {"b":"\u00e9","a":1}`, nil},
		"member":        {kinds.Project, `{"name":"a","x":1}`, `{"name":"b","y":null}`, []string{`/name: "a" → "b"`, `/x: - 1`, `/y: + null`}},
		"type":          {kinds.Project, `{"x":1}`, `{"x":"1"}`, []string{`/x: 1 → "1"`}},
		"object to set": {kinds.Project, `{"x":{}}`, `{"x":[]}`, []string{`/x: {} → []`}},
		"wide numbers":  {kinds.Project, `{"x":9007199254740993}`, `{"x":9007199254740992}`, []string{`/x: "9007199254740993" → 9007199254740992`}},
		"roles reordered": {kinds.RBACPolicy, policy, strings.NewReplacer(`["r","w"]`, `["w","r"]`,
			`{"resource_id":"e","actions":[]}]`, `{"actions":[],"resource_id":"e"}]`).Replace(policy), nil},
		"whole lists reordered": {
			kinds.RBACPolicy,
			`{"custom_roles":[{"role_id":"a"},{"role_id":"b"}],"brand_user":{"permissions":[{"resource_id":"a"},{"resource_id":"b"}]}}`,
			`{"brand_user":{"permissions":[{"resource_id":"b"},{"resource_id":"a"}]},"custom_roles":[{"role_id":"b"},{"role_id":"a"}]}`, nil,
		},
		"action granted": {
			kinds.RBACPolicy, policy, strings.Replace(policy, `["r","w"]`, `["w","x","r"]`, 1),
			[]string{`/custom_roles/role_id=a/permissions/resource_id=d/actions: + "x"`},
		},
		"role renamed": {
			kinds.RBACPolicy, policy, strings.Replace(policy, `"role_id":"b"`, `"role_id":"c/d"`, 1),
			[]string{`/custom_roles/role_id=b: - {"role_id":"b"}`, `/custom_roles/role_id=c~1d: + {"role_id":"c/d"}`},
		},
		"countries":        {kinds.SMSCountryCodes, `["DE","US"]`, `["FR","DE"]`, []string{`: + "FR"`, `: - "US"`}},
		"country twice":    {kinds.SMSCountryCodes, `["DE","DE"]`, `["DE"]`, []string{`: - "DE"`}},
		"keys twice":       {kinds.EmailTemplates, `[{"template_id":"a"},{"template_id":"a","n":1}]`, `[{"template_id":"a","n":1},{"template_id":"a"}]`, []string{`/0/n: + 1`, `/1/n: - 1`}},
		"unknown array":    {kinds.PasswordStrength, `{"x":[1,2]}`, `{"x":[2,1]}`, []string{`/x/0: 1 → 2`, `/x/1: 2 → 1`}},
		"unknown actions":  {kinds.PasswordStrength, `{"actions":[1,2]}`, `{"actions":[2,1]}`, []string{`/actions/0: 1 → 2`, `/actions/1: 2 → 1`}},
		"array grew":       {kinds.PasswordStrength, `{"x":[1]}`, `{"x":[1,[]]}`, []string{`/x/1: + []`}},
		"pem files":        {kinds.TrustedTokenProfiles, `[{"profile_id":"p","pem_files":[{"pem_file_id":"1"},{"pem_file_id":"2"}]}]`, `[{"profile_id":"p","pem_files":[{"pem_file_id":"2"},{"pem_file_id":"1"}]}]`, nil},
		"default template": {kinds.DefaultEmailTemplates, `{"LOGIN":null}`, `{"LOGIN":"t1"}`, []string{`/LOGIN: null → "t1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes, err := jsontext.Diff(subjects[tc.kind.Name].schema, json.RawMessage(tc.before), json.RawMessage(tc.after))
			require.NoError(t, err)
			var got []string
			for _, c := range changes.List {
				got = append(got, c.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestCompareDeep(t *testing.T) {
	t.Parallel()
	deep := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`[`, n) + strings.Repeat(`]`, n))
	}
	changes, err := jsontext.Diff(subjects[kinds.Project.Name].schema, deep(900), deep(901))
	require.NoError(t, err)
	require.Len(t, changes.List, 1)
	_, err = jsontext.Diff(subjects[kinds.Project.Name].schema, deep(100_000), deep(100_000))
	require.Error(t, err)
}

// shuffle reorders the unordered lists of the schema.
func shuffle(s *jsontext.Schema, v any, r *rand.Rand) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range x {
			out[name] = shuffle(s.Member(name), member, r)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, element := range x {
			out[i] = shuffle(s.Element(), element, r)
		}
		free := s != nil && s.Set
		if s != nil && s.Key != "" {
			free = named(x, s.Key)
		}
		if free {
			r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		}
		return out
	}
	return v
}

// normal sorts the lists of shuffle: equal meaning is equal JSON then.
func normal(s *jsontext.Schema, v any) any {
	sorted := shuffle(s, v, rand.New(rand.NewPCG(1, 1)))
	switch x := sorted.(type) {
	case map[string]any:
		for name, member := range x {
			x[name] = normal(s.Member(name), member)
		}
	case []any:
		for i, element := range x {
			x[i] = normal(s.Element(), element)
		}
		free := s != nil && s.Set
		if s != nil && s.Key != "" {
			free = named(x, s.Key)
		}
		if free {
			slices.SortFunc(x, func(a, b any) int { return strings.Compare(string(jsontext.Encode(a)), string(jsontext.Encode(b))) })
		}
	}
	return sorted
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte(`["DE","US"]`), []byte(`["US","DE","DE"]`), uint64(1))
	f.Add([]byte(`{"custom_roles":[{"role_id":"a","permissions":[{"resource_id":"d","actions":["r","w"]}]},{"role_id":"b"}]}`),
		[]byte(`{"custom_roles":[{"role_id":"b"},{"role_id":"a"}],"x_admin":{"permissions":[]}}`), uint64(2))
	f.Add([]byte(`[{"template_id":"a"},{"template_id":"a"}]`), []byte(`[[[1.50]],{"~/":null}]`), uint64(3))
	f.Add([]byte(`[{"profile_id":"a","pem_files":[{"pem_file_id":"x"},{"pem_file_id":"y"}]}]`), []byte(`9007199254740993`), uint64(4))
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		for _, kind := range kinds.All() {
			changes, err := jsontext.Diff(subjects[kind.Name].schema, a, b)
			x, errA := decoded(a)
			y, errB := decoded(b)
			require.Equal(t, errA != nil || errB != nil, err != nil)
			if err != nil {
				return
			}
			s := subjects[kind.Name].schema
			same := string(jsontext.Encode(normal(s, x))) == string(jsontext.Encode(normal(s, y)))
			require.Equal(t, same, len(changes.List) == 0, "%s: %v", kind.Name, changes)
			self, err := jsontext.Diff(subjects[kind.Name].schema, a, jsontext.Encode(shuffle(s, x, rand.New(rand.NewPCG(seed, 0)))))
			require.NoError(t, err)
			require.Empty(t, self.List, "%s reordered", kind.Name)
		}
	})
}

// named reports whether the key names each object of a list, and each once.
func named(list []any, key string) bool {
	seen := map[string]bool{}
	for _, element := range list {
		object, _ := element.(map[string]any)
		id, ok := object[key].(string)
		if !ok || seen[id] {
			return false
		}
		seen[id] = true
	}
	return true
}

// decoded reads a state as the differ does.
func decoded(raw []byte) (v any, _ error) {
	canonical, err := jsontext.Canonical(raw)
	if err != nil {
		return nil, err
	}
	return v, json.Unmarshal(canonical, &v)
}
