package workspace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// A type stands once in the request, and the preview says what is sent.
func TestRedirectTypes(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	url := s.env.RedirectURLs[0]
	for name, c := range map[string]struct {
		arguments []string
		sent      []management.RedirectType
		says      []string
	}{
		"in both lists": {
			[]string{"types", "LOGIN,SIGNUP,LOGIN", "default_types", "SIGNUP"},
			[]management.RedirectType{{IsDefault: true, Type: "SIGNUP"}, {Type: "LOGIN"}},
			[]string{"become: SIGNUP, LOGIN (", "the default for: SIGNUP", "do_not_promote_defaults: false"},
		},
		"emptied": {[]string{"types", ""}, []management.RedirectType{}, []string{"become: none", "the default for: none"}},
		"no default any more": {
			[]string{"types", "LOGIN", "default_types", " ", "do_not_promote_defaults", "true"},
			[]management.RedirectType{{Type: "LOGIN"}},
			[]string{"become: LOGIN", "the default for: none", "do_not_promote_defaults: true"},
		},
	} {
		r := s.request("redirect_urls.set_types", append([]string{"url", url}, c.arguments...)...)
		assert.Equal(t, c.sent, redirectTypes(r).ValidTypes, name)
		p, err := s.Plan(t.Context(), r)
		require.NoError(t, err, name)
		for _, says := range c.says {
			assert.Contains(t, strings.Join(p.Changes, "\n"), says, name)
		}
		_, err = s.Do(t.Context(), r)
		require.NoError(t, err, "%s: the API takes it", name)
	}
	for _, none := range [][]string{nil, {"do_not_promote_defaults", "true"}} {
		_, err := s.Plan(t.Context(), s.request("redirect_urls.set_types", append([]string{"url", url}, none...)...))
		require.ErrorIs(t, err, ErrUsage, "nothing is emptied unasked")
	}
}
