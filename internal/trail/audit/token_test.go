package audit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A key has three tokens, whatever the names are, and no two of them are alike.
func TestNamesAreTokens(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "%", "live": "live", "Env_1-b": "Env_1-b", "a.b": "a%2Eb", "%": "%25", "a b": "a%20b", "ä": "%C3%A4", "\xff": "%FF", "a/b*>": "a%2Fb%2A%3E",
	} {
		assert.Equal(t, want, token(name), "%q", name)
	}
}
